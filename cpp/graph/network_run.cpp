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

std::int64_t bytes_of(std::size_t pointers) {
    return static_cast<std::int64_t>(pointers * sizeof(char*));
}

std::int64_t bytes_of_run(std::int64_t planned, std::size_t bases, std::size_t values) {
    ScratchCutter sizes(nullptr);
    sizes.take(planned);
    sizes.take(bytes_of(bases));
    sizes.take(bytes_of(values));
    return sizes.bytes();
}

}  // namespace

Network::Memory::Memory(const Network& network)
    : network_(network),
      own_(*network.workspaces_,
           bytes_of_run(network.plan_.bytes, kInputs + network.arrays(), network.values_.size())) {
    ScratchCutter cutter(own_.data());
    char* const planned = cutter.take(network.plan_.bytes);
    bases_ = reinterpret_cast<std::intptr_t*>(cutter.take(bytes_of(kInputs + network.arrays())));
    addresses_ = reinterpret_cast<std::intptr_t*>(cutter.take(bytes_of(network.values_.size())));
    bases_[kNoBase] = 0;
    bases_[kPlan] = reinterpret_cast<std::intptr_t>(planned);
}

Addresses Network::Memory::addresses() const {
    for (std::size_t i = 0; i < network_.places_.size(); ++i) {
        const Place& it = network_.places_[i];
        addresses_[i] = bases_[it.base] + it.offset;
    }
    return {reinterpret_cast<char* const*>(addresses_)};
}

template <class ArrayOf, class Run>
void Network::run_on(const ArrayOf& array_of, const Run& run) const {
    Memory memory(*this);
    for (std::size_t i = 0; i < arrays(); ++i) memory.set(i, array_of(i));
    run(memory.addresses());
}

void Network::require_ready(const Arrays& arrays) const {
    if (!is_finished_) {
        throw std::invalid_argument(
            "the network is not finished: finish(results) comes before a run");
    }
    if (arrays.inputs.size() != inputs_.size() || arrays.results.size() != results_.size()) {
        throw std::invalid_argument("a run takes " + std::to_string(inputs_.size()) +
                                    " inputs and " + std::to_string(results_.size()) + " results");
    }
}

template <class Run>
void Network::run_on(const Arrays& arrays, const Run& run) const {
    require_ready(arrays);
    run_on([&](std::size_t i) { return array_of(arrays, i); }, run);
}

void Network::run_steps(const Range& steps, const Addresses& at, RunEvents* events) const {
    if (events == nullptr) {
        for (std::int64_t i = steps.begin; i < steps.end; ++i) run_step(steps_[index(i)], at);
        return;
    }
    for (std::int64_t i = steps.begin; i < steps.end; ++i) {
        run_step(steps_[index(i)], at);
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

void Network::run_part(const Range& steps, const Addresses& at, RunEvents* events) const {
    std::int64_t done = steps.begin;
    for (const Stretch& it : stretches_) {
        const bool is_inside = it.steps().begin >= steps.begin && it.steps().end <= steps.end;
        if (!is_inside || !it.pays(num_threads())) continue;
        run_steps({done, it.steps().begin}, at, events);
        run_branches(it, at, events);
        done = it.steps().end;
    }
    run_steps({done, steps.end}, at, events);
}

std::vector<int> Network::uses_in(const Range& steps) const {
    std::vector<int> uses(arrays());
    for (std::int64_t i = steps.begin; i < steps.end; ++i) {
        for (const std::size_t array : used_by_[index(i)]) ++uses[array];
    }
    return uses;
}

void Network::run_told(const Range& steps, const Addresses& at, RunEvents* events) const {
    if (events == nullptr) {
        run_part(steps, at);
        return;
    }
    events->begin(uses_in(steps));
    try {
        run_part(steps, at, events);
    } catch (...) {
        events->end();
        throw;
    }
    events->end();
}

void Network::run(const Arrays& arrays, RunEvents* events) const {
    run_on(arrays, [&](const Addresses& at) { run_told(all_steps(), at, events); });
}

void Network::run(char* const* arrays) const {
    run_on([&](std::size_t i) { return arrays[i]; },
           [&](const Addresses& at) { run_part(all_steps(), at); });
}

Network::Paused::Paused(const Network& network, const Arrays& arrays)
    : network_(network), memory_(network) {
    network.require_ready(arrays);
    if (!network.pauses()) throw std::invalid_argument("the network does not pause");
    for (std::size_t i = 0; i < network.arrays(); ++i) memory_.set(i, array_of(arrays, i));
    network.run_part({0, network.pause_}, memory_.addresses());
}

void Network::Paused::resume(const Arrays& arrays, RunEvents* events) {
    network_.require_ready(arrays);
    for (std::size_t i = 0; i < network_.arrays(); ++i) {
        const void* const array = array_of(arrays, i);
        if (array != nullptr) memory_.set(i, array);
    }
    const Range second{network_.pause_, network_.all_steps().end};
    network_.run_told(second, memory_.addresses(), events);
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
        const auto run = [&] { run_part(all_steps(), at); };
        prices.alone = std::get<0>(cycles(1, run));
        prices.shared = std::get<0>(cycles(threads, run));
    });
    return prices;
}

}  // namespace dlprim
