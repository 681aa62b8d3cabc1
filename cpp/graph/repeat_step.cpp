#include "graph/repeat_step.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "primitives/tensor/workspace.h"

namespace dlprim {
namespace {

[[noreturn]] void refuse_repeat(const std::string& label, const std::string& sentence) {
    throw std::invalid_argument("step " + label + " (repeat): " + sentence);
}

class RepeatRun {
public:
    RepeatRun(const Network& network, const RepeatedSteps& steps, const std::string& label)
        : steps_(steps) {
        check_counts(label);
        const std::vector<int>& own = steps.body.inputs();
        for (std::size_t i = 0; i < own.size(); ++i) {
            const bool is_state = i >= steps.inputs.size();
            const int value = is_state ? steps.states[i - steps.inputs.size()] : steps.inputs[i];
            const std::int64_t parts = parts_of(network, value, own[i], label);
            if (i == 0) count_ = parts;
            if (parts != (is_state ? 1 : count_)) refuse_parts(network, value, label);
        }
        for (std::size_t i = 0; i < steps.results.size(); ++i) {
            const int value = steps.results[i];
            periods_.push_back(parts_of(network, value, steps.body.results()[i], label));
            if (periods_[i] < 2 && periods_[i] != count_) refuse_parts(network, value, label);
        }
        for (std::size_t i = 0; i < steps.carried.size(); ++i) {
            const int result = steps.body.results()[static_cast<std::size_t>(steps.carried[i])];
            if (steps.body.tensor(result).bytes() != bytes_of_input(steps.inputs.size() + i)) {
                refuse_repeat(
                    label, "state " + std::to_string(i) + " and what is carried on to it differ");
            }
        }
    }

    double flops() const { return static_cast<double>(count_) * steps_.body.flops(); }

    std::string described() const {
        return std::to_string(count_) + " steps:\n" + steps_.body.described();
    }

    void run(const Addresses& at) const {
        const std::size_t inputs = steps_.body.inputs().size();
        const std::size_t arrays = inputs + steps_.results.size();
        const WorkspacePool::Lease own(WorkspacePool::lasting(),
                                       static_cast<std::int64_t>(arrays * sizeof(char*)));
        auto* const where = reinterpret_cast<char**>(own.data());
        for (std::int64_t step = 0; step < count_; ++step) {
            const std::int64_t time = steps_.reverse ? count_ - 1 - step : step;
            for (std::size_t i = 0; i < steps_.states.size(); ++i) {
                const auto carried = static_cast<std::size_t>(steps_.carried[i]);
                where[steps_.inputs.size() + i] =
                    step == 0 ? at[steps_.states[i]].data : where[inputs + carried];
            }
            for (std::size_t i = 0; i < steps_.inputs.size(); ++i) {
                where[i] = at[steps_.inputs[i]].data + time * bytes_of_input(i);
            }
            for (std::size_t i = 0; i < steps_.results.size(); ++i) {
                where[inputs + i] =
                    at[steps_.results[i]].data + (time % periods_[i]) * bytes_of_result(i);
            }
            steps_.body.run(where);
        }
    }

private:
    void check_counts(const std::string& label) const {
        const Network& body = steps_.body;
        const bool fits = body.is_finished() && !steps_.inputs.empty() &&
                          body.inputs().size() == steps_.inputs.size() + steps_.states.size() &&
                          body.results().size() == steps_.results.size() &&
                          steps_.carried.size() == steps_.states.size();
        if (!fits)
            refuse_repeat(label, "the body has other inputs and results, or is not finished");
        if (body.runs_alone()) refuse_repeat(label, "the body has steps that run alone");
        if (body.has_states()) refuse_repeat(label, "the body changes states of its own");
        for (const int result : steps_.carried) {
            if (result < 0 || result >= static_cast<int>(steps_.results.size())) {
                refuse_repeat(label, "it carries on result " + std::to_string(result) +
                                         ", expected 0 to " +
                                         std::to_string(steps_.results.size() - 1));
            }
        }
    }

    std::int64_t bytes_of_input(std::size_t place) const {
        return steps_.body.tensor(steps_.body.inputs()[place]).bytes();
    }

    std::int64_t bytes_of_result(std::size_t place) const {
        return steps_.body.tensor(steps_.body.results()[place]).bytes();
    }

    std::int64_t parts_of(const Network& network, int value, int own,
                          const std::string& label) const {
        const NetworkTensor& whole = network.tensor(value);
        const NetworkTensor& part = steps_.body.tensor(own);
        const bool fits = whole.is_dense() && whole.dtype == part.dtype && part.bytes() > 0 &&
                          whole.bytes() % part.bytes() == 0;
        if (!fits) {
            refuse_repeat(label, "value " + std::to_string(value) + " is " + whole.described() +
                                     ", expected some " + part.described() + " in C order");
        }
        return whole.bytes() / part.bytes();
    }

    [[noreturn]] void refuse_parts(const Network& network, int value,
                                   const std::string& label) const {
        refuse_repeat(label, "value " + std::to_string(value) + " is " +
                                 network.tensor(value).described() +
                                 ", expected a part for each of " + std::to_string(count_) +
                                 " steps, or one of a state");
    }

    RepeatedSteps steps_;
    std::vector<std::int64_t> periods_ = {};  // parts of each result
    std::int64_t count_ = 0;
};

}  // namespace

NetworkStep repeat_step(const Network& network, const RepeatedSteps& steps, std::string label) {
    const RepeatRun made(network, steps, label);
    std::vector<int> reads = steps.inputs;
    reads.insert(reads.end(), steps.states.begin(), steps.states.end());
    return {.kind = "repeat",
            .label = std::move(label),
            .reads = reads,
            .writes = steps.results,
            .inside = made.described(),
            .flops = made.flops(),
            .run = [made](const Addresses& at) { made.run(at); }};
}

LoopRuns run_looped(const LoopedBody& it, LoopArrays& arrays, const LoopRuns& runs) {
    using Feed = LoopedBody::Feed;
    const Network& body = it.body;
    const std::size_t inputs = body.inputs().size();
    std::vector<char*> where(inputs + body.results().size());
    std::int64_t number = runs.first;
    bool holds = runs.holds;
    const auto source = [&](std::size_t i) -> char* {
        const auto place = static_cast<std::size_t>(it.feeds[i].second);
        switch (it.feeds[i].first) {
            case Feed::fixed: return arrays.fixed[place];
            case Feed::number: return reinterpret_cast<char*>(&number);
            case Feed::condition: return reinterpret_cast<char*>(&holds);
            case Feed::state: return arrays.states[place];
            case Feed::row: break;
        }
        return arrays.rows[place] + number * body.tensor(body.inputs()[i]).bytes();
    };
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(runs.seconds);
    const std::int64_t last = runs.first + runs.count;
    while (holds && number < last) {
        for (std::size_t i = 0; i < inputs; ++i) where[i] = source(i);
        for (std::size_t i = 0; i < arrays.results.size(); ++i) {
            where[inputs + i] = arrays.results[i][static_cast<std::size_t>(number % 2)];
        }
        body.run(where.data());
        for (std::size_t i = 0; i < it.kept.size(); ++i) {
            const auto& [is_result, which] = it.kept[i];
            const auto place = static_cast<std::size_t>(which);
            const char* const from = is_result ? where[inputs + place] : arrays.states[place];
            const std::int64_t bytes = arrays.kept_bytes[i];
            std::memcpy(arrays.kept[i] + number * bytes, from, static_cast<std::size_t>(bytes));
        }
        for (std::size_t i = 0; i < it.carried.size(); ++i) {
            if (it.carried[i] < 0) continue;
            arrays.states[i] = where[inputs + static_cast<std::size_t>(it.carried[i])];
        }
        if (it.condition >= 0) {
            holds = *where[inputs + static_cast<std::size_t>(it.condition)] != 0;
        }
        ++number;
        if (std::chrono::steady_clock::now() > end) break;
    }
    return {.first = number, .count = number - runs.first, .holds = holds};
}

}  // namespace dlprim
