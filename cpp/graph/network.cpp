#include "graph/network.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <stdexcept>
#include <utility>

#include "graph/copy_step.h"
#include "primitives/tensor/partition.h"

namespace dlprim {
namespace {

// Bases of places: of constants, whose offsets are addresses; the memory of the plan; inputs; and
// behind these results.
constexpr std::size_t kNoBase = 0;
constexpr std::size_t kPlan = 1;
constexpr std::size_t kInputs = 2;

std::size_t size(std::int64_t count) { return static_cast<std::size_t>(count); }

[[noreturn]] void refuse(const std::string& sentence) { throw std::invalid_argument(sentence); }

// Whether the step may write on a value wherever it reads it.
bool may_replace(const NetworkStep& step, int value) {
    return std::count(step.reads.begin(), step.reads.end(), value) <=
           std::count(step.replaced.begin(), step.replaced.end(), value);
}

std::string name_of(const NetworkStep& step) {
    return "step " + step.label + " (" + step.kind + ")";
}

}  // namespace

const Network::Value& Network::at(int value) const {
    if (value < 0 || value >= count()) {
        refuse("there is no value " + std::to_string(value) + ", expected one of the " +
               std::to_string(count()) + " of the network");
    }
    return values_[static_cast<std::size_t>(value)];
}

void Network::require_open() const {
    if (is_finished_) refuse("the network is finished: nothing can be added to it");
}

int Network::add_value(Value value) {
    require_open();
    if (value.root < 0) value.root = count();
    values_.push_back(std::move(value));
    return count() - 1;
}

int Network::input(NetworkTensor tensor) {
    return add_value({.tensor = std::move(tensor), .kind = Kind::input, .number = inputs_++});
}

int Network::constant(NetworkTensor tensor, const void* data) {
    return add_value({.tensor = std::move(tensor),
                      .kind = Kind::constant,
                      .data = static_cast<char*>(const_cast<void*>(data))});
}

int Network::temporary(NetworkTensor tensor) { return add_value({.tensor = std::move(tensor)}); }

int Network::view(int of, NetworkTensor tensor, std::int64_t offset) {
    const Value& seen = at(of);
    Value made = seen;
    made.offset += offset;
    made.tensor = std::move(tensor);
    const auto [low, high] = made.tensor.extent();
    const auto [first, last] = at(seen.root).tensor.extent();
    if (made.offset + low < first || made.offset + high > last) {
        refuse("a view of value " + std::to_string(of) + ", which is " + seen.tensor.described() +
               ", reaches from byte " + std::to_string(made.offset + low) + " to " +
               std::to_string(made.offset + high) + ", expected a view within its bytes " +
               std::to_string(first) + " to " + std::to_string(last));
    }
    return add_value(std::move(made));
}

const void* Network::constant_data(int value) const {
    const Value& it = at(value);
    return it.kind == Kind::constant ? it.data + it.offset : nullptr;
}

bool Network::is_same_memory(int one, int other) const {
    const Value &a = at(one), &b = at(other);
    return one == other ||
           (a.root == b.root && a.offset == b.offset && a.tensor.element == b.tensor.element &&
            a.tensor.bytes() == b.tensor.bytes() && a.tensor.is_dense() && b.tensor.is_dense());
}

void Network::require_sound(const NetworkStep& step) const {
    for (const int read : step.reads) require_written(read, name_of(step));
    for (std::size_t i = 0; i < step.writes.size(); ++i) {
        const int written = step.writes[i];
        const Value& it = at(written);
        if (it.kind != Kind::temporary && it.kind != Kind::result) {
            refuse(name_of(step) + " writes value " + std::to_string(written) +
                   ", which is an input or a constant, expected a temporary");
        }
        const auto require_apart = [&](int other) {
            const Value& beside = at(other);
            if (beside.root != it.root || !may_overlap(at(it.root).tensor, {it.tensor, it.offset},
                                                       {beside.tensor, beside.offset})) {
                return;
            }
            refuse(name_of(step) + " writes value " + std::to_string(written) +
                   " on memory of value " + std::to_string(other) + ", which it uses as well");
        };
        for (const int read : step.reads) {
            if (!is_same_memory(read, written) || !may_replace(step, read)) require_apart(read);
        }
        for (std::size_t other = 0; other < i; ++other) require_apart(step.writes[other]);
    }
}

void Network::add(NetworkStep step) {
    require_open();
    require_sound(step);
    const bool does_nothing = std::all_of(step.writes.begin(), step.writes.end(),
                                          [&](int value) { return tensor(value).elements() == 0; });
    if (does_nothing) return;
    for (const int written : step.writes) root_of(written).is_written = true;
    steps_.push_back(std::move(step));
}

void Network::require_written(int value, const std::string& reader) const {
    const Value& root = at(at(value).root);
    if (root.kind != Kind::temporary || root.is_written || root.tensor.elements() == 0) return;
    refuse(reader + " reads value " + std::to_string(value) +
           ", which no step before it has written");
}

void Network::add_result(std::int64_t number, int value) {
    Value& root = root_of(value);
    if (root.kind == Kind::temporary && is_same_memory(value, at(value).root)) {
        root.kind = Kind::result;
        root.number = number;
        return;
    }
    const NetworkTensor& tensor = this->tensor(value);
    const int copy = add_value({.tensor = dense_tensor(tensor.dtype, tensor.element, tensor.shape),
                                .kind = Kind::result,
                                .number = number});
    add(copy_step(*this, value, copy, "result " + std::to_string(number)));
}

void Network::finish(const std::vector<int>& results) {
    require_open();
    for (const int value : results) require_written(value, "a result");
    for (const int value : results) add_result(results_++, value);
    // Views are what their roots have become.
    for (Value& it : values_) {
        const Value& root = values_[static_cast<std::size_t>(it.root)];
        it.kind = root.kind;
        it.number = root.number;
    }
    make_plan();
    is_finished_ = true;
}

void Network::make_plan() {
    lifetimes_.assign(values_.size(), {});
    for (std::size_t i = 0; i < steps_.size(); ++i) {
        const auto use = [&](int value) {
            const Value& root = root_of(value);
            if (root.kind != Kind::temporary) return;
            Lifetime& it = lifetimes_[size(values_[size(value)].root)];
            const auto step = static_cast<std::int64_t>(i);
            if (it.last < it.first) it = {step, step, root.tensor.bytes()};
            it.last = step;
        };
        std::for_each(steps_[i].reads.begin(), steps_[i].reads.end(), use);
        std::for_each(steps_[i].writes.begin(), steps_[i].writes.end(), use);
    }
    for (const Value& it : values_) owners_.push_back(size(it.root));
    for (std::size_t i = 0; i < steps_.size(); ++i) {
        for (const int written : steps_[i].writes) share_memory(i, written);
    }
    plan_ = plan_buffers(lifetimes_);
    require_valid(plan_, lifetimes_);
    for (const Value& it : values_) places_.push_back(place_of(it));
}

// What a step makes lies where a value was that it may replace and that nothing reads any more.
void Network::share_memory(std::size_t step, int written) {
    const NetworkStep& it = steps_[step];
    const NetworkTensor& made = tensor(written);
    const auto now = static_cast<std::int64_t>(step);
    const auto is_whole = [&](int value) {
        const Value& of = at(value);
        return of.kind == Kind::temporary && of.root == value;
    };
    if (!is_whole(written) || lifetimes_[size(written)].first != now) return;
    for (const int read : it.replaced) {
        const bool is_read_otherwise =
            std::any_of(it.reads.begin(), it.reads.end(),
                        [&](int other) { return other != read && at(other).root == read; });
        const bool fits = is_whole(read) && tensor(read).bytes() == made.bytes() &&
                          tensor(read).element == made.element;
        if (!fits || is_read_otherwise || !may_replace(it, read)) continue;
        Lifetime& owner = lifetimes_[owners_[size(read)]];
        if (owner.last != now || owner.first == now) continue;
        owner.last = lifetimes_[size(written)].last;
        lifetimes_[size(written)] = {};
        owners_[size(written)] = owners_[size(read)];
        return;
    }
}

Network::Place Network::place_of(const Value& value) const {
    switch (value.kind) {
        case Kind::input: return {kInputs + size(value.number), value.offset};
        case Kind::result: return {kInputs + size(inputs_ + value.number), value.offset};
        case Kind::temporary:
            return {kPlan, plan_.offsets[owners_[size(value.root)]] + value.offset};
        case Kind::constant: break;
    }
    return {kNoBase, reinterpret_cast<std::intptr_t>(value.data) + value.offset};
}

template <class Each>
void Network::run_steps(const Arrays& arrays, const Each& each) const {
    if (!is_finished_) refuse("the network is not finished: finish(results) comes before a run");
    if (arrays.inputs.size() != size(inputs_) || arrays.results.size() != size(results_)) {
        refuse("a run takes " + std::to_string(inputs_) + " inputs and " +
               std::to_string(results_) + " results");
    }
    constexpr auto kPointer = static_cast<std::int64_t>(sizeof(char*));
    ScratchCutter sizes(nullptr);
    sizes.take(plan_.bytes);
    sizes.take((2 + inputs_ + results_) * kPointer);
    sizes.take(count() * kPointer);
    const WorkspacePool::Lease own(*workspaces_, sizes.bytes());
    ScratchCutter cutter(own.data());
    char* const planned = cutter.take(plan_.bytes);
    auto* const bases =
        reinterpret_cast<std::intptr_t*>(cutter.take((2 + inputs_ + results_) * kPointer));
    auto* const addresses = reinterpret_cast<std::intptr_t*>(cutter.take(count() * kPointer));
    bases[kNoBase] = 0;
    bases[kPlan] = reinterpret_cast<std::intptr_t>(planned);
    std::intptr_t* base = bases + kInputs;
    for (const void* it : arrays.inputs) *base++ = reinterpret_cast<std::intptr_t>(it);
    for (void* it : arrays.results) *base++ = reinterpret_cast<std::intptr_t>(it);
    for (std::size_t i = 0; i < places_.size(); ++i) {
        addresses[i] = bases[places_[i].base] + places_[i].offset;
    }
    const Addresses at{reinterpret_cast<char* const*>(addresses)};
    for (const NetworkStep& step : steps_) {
        try {
            each(step, at);
        } catch (const std::out_of_range& error) {
            throw std::out_of_range("in " + name_of(step) + ": " + error.what());
        } catch (const std::invalid_argument& error) {
            throw std::invalid_argument("in " + name_of(step) + ": " + error.what());
        }
    }
}

void Network::run(const Arrays& arrays) const {
    run_steps(arrays, [](const NetworkStep& step, const Addresses& at) { step.run(at); });
}

std::vector<Network::StepTime> Network::profile(const Arrays& arrays) const {
    using Clock = std::chrono::steady_clock;
    std::vector<StepTime> times;
    run_steps(arrays, [&](const NetworkStep& step, const Addresses& at) {
        const Clock::time_point begin = Clock::now();
        step.run(at);
        const std::chrono::duration<double> took = Clock::now() - begin;
        times.push_back({step.kind, step.label, took.count()});
    });
    return times;
}

std::string Network::described() const {
    const auto listed = [&](const std::vector<int>& numbers) {
        std::string text;
        for (const int value : numbers) {
            text += (text.empty() ? "" : ", ") + std::to_string(value) + " " +
                    tensor(value).described();
        }
        return text;
    };
    std::string text;
    for (const NetworkStep& step : steps_) {
        text += step.label + ": " + step.kind + "(" + listed(step.reads) + ") -> " +
                listed(step.writes) + "\n";
    }
    return text;
}

}  // namespace dlprim
