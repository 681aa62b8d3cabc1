// How a network runs: where all values of a run are, and its steps on them.
#include <chrono>
#include <cstddef>
#include <cstring>
#include <stdexcept>
#include <tuple>

#include "graph/network.h"
#include "jit/pricing.h"
#include "primitives/tensor/parallel.h"

namespace dlprim {
namespace {

void run_step(const NetworkStep& step, const Addresses& at) {
    try {
        step.run(at);
    } catch (const std::out_of_range& error) {
        throw std::out_of_range("in " + name_of(step) + ": " + error.what());
    } catch (const std::invalid_argument& error) {
        throw std::invalid_argument("in " + name_of(step) + ": " + error.what());
    }
}

}  // namespace

template <class ArrayOf, class Run>
void Network::run_on(const ArrayOf& array_of, const Run& run) const {
    const std::size_t arrays = inputs_.size() + results_.size();
    constexpr auto kPointer = static_cast<std::int64_t>(sizeof(char*));
    const auto bytes_of_bases = static_cast<std::int64_t>(kInputs + arrays) * kPointer;
    ScratchCutter sizes(nullptr);
    sizes.take(plan_.bytes);
    sizes.take(bytes_of_bases);
    sizes.take(count() * kPointer);
    const WorkspacePool::Lease own(*workspaces_, sizes.bytes());
    ScratchCutter cutter(own.data());
    char* const planned = cutter.take(plan_.bytes);
    auto* const bases = reinterpret_cast<std::intptr_t*>(cutter.take(bytes_of_bases));
    auto* const addresses = reinterpret_cast<std::intptr_t*>(cutter.take(count() * kPointer));
    bases[kNoBase] = 0;
    bases[kPlan] = reinterpret_cast<std::intptr_t>(planned);
    for (std::size_t i = 0; i < arrays; ++i) {
        bases[kInputs + i] = reinterpret_cast<std::intptr_t>(array_of(i));
    }
    for (std::size_t i = 0; i < places_.size(); ++i) {
        addresses[i] = bases[places_[i].base] + places_[i].offset;
    }
    run(Addresses{reinterpret_cast<char* const*>(addresses)});
}

template <class Run>
void Network::run_on(const Arrays& arrays, const Run& run) const {
    if (!is_finished_) {
        throw std::invalid_argument(
            "the network is not finished: finish(results) comes before a run");
    }
    if (arrays.inputs.size() != inputs_.size() || arrays.results.size() != results_.size()) {
        throw std::invalid_argument("a run takes " + std::to_string(inputs_.size()) +
                                    " inputs and " + std::to_string(results_.size()) + " results");
    }
    const auto array_of = [&](std::size_t i) -> const void* {
        return i < inputs_.size() ? arrays.inputs[i] : arrays.results[i - inputs_.size()];
    };
    run_on(array_of, run);
}

void Network::run_steps(const Range& steps, const Addresses& at, RunEvents* events) const {
    for (std::int64_t i = steps.begin; i < steps.end; ++i) {
        run_step(steps_[index(i)], at);
        if (events == nullptr) continue;
        for (const std::size_t array : used_by_[index(i)]) events->used(array);
    }
}

// Dealt out in turn, as those of most work come first; who is done takes others' smallest.
void Network::run_branches(const Stretch& stretch, const Addresses& at, RunEvents* events) const {
    const auto count = std::ssize(stretch.branches);
    const int threads = num_threads();
    parallel_ranges(count, threads, [&](Range tasks, int) {
        for (std::int64_t task = tasks.begin; task < tasks.end; ++task) {
            run_steps(stretch.branches[index(dealt(count, threads, task))], at, events);
        }
    });
}

void Network::run_all(const Addresses& at, RunEvents* events) const {
    std::int64_t done = 0;
    for (const Stretch& it : stretches_) {
        if (!it.pays(num_threads())) continue;
        run_steps({done, it.steps().begin}, at, events);
        run_branches(it, at, events);
        done = it.steps().end;
    }
    run_steps({done, static_cast<std::int64_t>(steps_.size())}, at, events);
}

void Network::run(const Arrays& arrays, RunEvents* events) const {
    if (events == nullptr) {
        run_on(arrays, [&](const Addresses& at) { run_all(at); });
        return;
    }
    events->begin(uses_);
    try {
        run_on(arrays, [&](const Addresses& at) { run_all(at, events); });
    } catch (...) {
        events->end();
        throw;
    }
    events->end();
}

void Network::run(char* const* arrays) const {
    run_on([&](std::size_t i) { return arrays[i]; }, [&](const Addresses& at) { run_all(at); });
}

std::vector<Network::StepTime> Network::profile(const Arrays& arrays) const {
    using Clock = std::chrono::steady_clock;
    std::vector<StepTime> times;
    run_on(arrays, [&](const Addresses& at) {
        for (const NetworkStep& step : steps_) {
            const Clock::time_point begin = Clock::now();
            run_step(step, at);
            const std::chrono::duration<double> took = Clock::now() - begin;
            times.push_back({step.kind, step.label, took.count()});
        }
    });
    return times;
}

Network::Prices Network::priced(const Arrays& arrays, int threads) const {
    Prices prices;
    const auto cycles = [](int on, const auto& run) {
        const Pricing pricing(on);
        run();
        return std::tuple(pricing.elapsed(), pricing.loops(), pricing.tasks());
    };
    run_on(arrays, [&](const Addresses& at) {
        // Indices that a step would compute are then those of the first element.
        for (std::size_t i = 0; i < values_.size(); ++i) {
            const Value& it = values_[i];
            if (it.kind != Kind::temporary || it.root != static_cast<int>(i)) continue;
            std::memset(at[static_cast<int>(i)].data, 0, index(it.tensor.bytes()));
        }
        for (const NetworkStep& step : steps_) {
            const auto run = [&] { run_step(step, at); };
            Price price{.kind = step.kind, .label = step.label};
            price.alone = std::get<0>(cycles(1, run));
            std::tie(price.shared, price.loops, price.tasks) = cycles(threads, run);
            prices.steps.push_back(std::move(price));
        }
        const auto run = [&] { run_all(at); };
        prices.alone = std::get<0>(cycles(1, run));
        prices.shared = std::get<0>(cycles(threads, run));
    });
    return prices;
}

}  // namespace dlprim
