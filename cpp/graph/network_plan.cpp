// What is decided of a network when all of its steps are known: which of them run side by side, and
// where every value is.
#include <algorithm>
#include <cstddef>
#include <utility>

#include "graph/network.h"
#include "primitives/tensor/parallel.h"

namespace dlprim {
void Network::make_plan() {
    make_branches();
    branch_of_.assign(steps_.size(), {});
    for (const Stretch& stretch : stretches_) {
        for (const Range& branch : stretch.branches) {
            for (std::int64_t i = branch.begin; i < branch.end; ++i) {
                branch_of_[index(i)] = {branch.begin, stretch.steps()};
            }
        }
    }
    lifetimes_.assign(values_.size(), {});
    for (std::size_t i = 0; i < steps_.size(); ++i) {
        const auto use = [&](int value) {
            const Value& root = root_of(value);
            if (root.kind != Kind::temporary) return;
            Lifetime& it = lifetimes_[index(values_[index(value)].root)];
            it.bytes = root.tensor.bytes();
            it.use(static_cast<std::int64_t>(i), branch_of_[i]);
        };
        std::for_each(steps_[i].reads.begin(), steps_[i].reads.end(), use);
        std::for_each(steps_[i].writes.begin(), steps_[i].writes.end(), use);
    }
    for (const Value& it : values_) owners_.push_back(index(it.root));
    for (std::size_t i = 0; i < steps_.size(); ++i) {
        for (const int written : steps_[i].writes) share_memory(i, written);
    }
    plan_ = plan_buffers(lifetimes_);
    require_valid(plan_, lifetimes_);
    for (const Value& it : values_) places_.push_back(place_of(it));
    count_uses();
}

// A result that is another one's copy has an array of its own.
void Network::count_uses() {
    final_after_.assign(arrays(), 0);
    used_by_.resize(steps_.size());
    for (std::size_t i = 0; i < steps_.size(); ++i) {
        std::vector<std::size_t>& used = used_by_[i];
        const auto use = [&](int value) {
            const std::size_t base = places_[index(value)].base;
            if (base >= kInputs) used.push_back(base - kInputs);
        };
        std::for_each(steps_[i].reads.begin(), steps_[i].reads.end(), use);
        std::for_each(steps_[i].writes.begin(), steps_[i].writes.end(), use);
        std::sort(used.begin(), used.end());
        used.erase(std::unique(used.begin(), used.end()), used.end());
        for (const std::size_t array : used) final_after_[array] = i + 1;
    }
}

void Network::make_branches() {
    std::vector<StepCost> costs;
    std::vector<std::vector<Access>> accesses(values_.size());
    bool has_changed = false;  // a state
    for (std::size_t i = 0; i < steps_.size(); ++i) {
        const NetworkStep& step = steps_[i];
        double bytes = 0;
        StepCost cost{.alone = step.alone};
        const auto use = [&](int value, bool writes) {
            bytes += static_cast<double>(tensor(value).bytes());
            const Access access{.step = i, .value = value, .writes = writes};
            std::vector<Access>& others = accesses[index(at(value).root)];
            for (auto it = others.rbegin(); it != others.rend(); ++it) {
                if (it->step + kLongestStretch <= i) break;
                if (it->step != i && must_wait(access, *it)) cost.after.push_back(it->step);
            }
            others.push_back(access);
        };
        for (const int value : step.reads) use(value, false);
        for (const int value : step.writes) use(value, true);
        const bool changes = std::any_of(step.writes.begin(), step.writes.end(), [&](int value) {
            return at(at(value).root).kind == Kind::state;
        });
        cost.begins = (changes && !has_changed) || static_cast<std::int64_t>(i) == pause_;
        has_changed = has_changed || changes;
        cost.work = worth_of_threads(step.flops, bytes);
        costs.push_back(std::move(cost));
    }
    BranchPlan plan = plan_branches(costs);
    std::vector<NetworkStep> sorted;
    for (const std::size_t step : plan.order) sorted.push_back(std::move(steps_[step]));
    steps_ = std::move(sorted);
    stretches_ = std::move(plan.stretches);
}

// Of one root.
bool Network::must_wait(const Access& one, const Access& other) const {
    return (one.writes || other.writes) && share_elements(one.value, other.value);
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
    if (!is_whole(written) || lifetimes_[index(written)].first != now) return;
    for (const int read : it.replaced) {
        const bool is_read_otherwise =
            std::any_of(it.reads.begin(), it.reads.end(),
                        [&](int other) { return other != read && at(other).root == read; });
        const bool fits = is_whole(read) && tensor(read).bytes() == made.bytes() &&
                          tensor(read).element == made.element;
        if (!fits || is_read_otherwise || !may_replace(it, read)) continue;
        Lifetime& owner = lifetimes_[owners_[index(read)]];
        const bool is_last = owner.last == now && owner.last_in.number == branch_of_[step].number;
        if (!is_last || owner.first == now) continue;
        owner.last = lifetimes_[index(written)].last;
        owner.last_in = lifetimes_[index(written)].last_in;
        lifetimes_[index(written)] = {};
        owners_[index(written)] = owners_[index(read)];
        return;
    }
}

Network::Place Network::place_of(const Value& value) const {
    switch (value.kind) {
        case Kind::input:
        case Kind::state: return {kInputs + index(value.number), value.offset};
        case Kind::result: return {kInputs + inputs_.size() + index(value.number), value.offset};
        case Kind::temporary:
            return {kPlan, plan_.offsets[owners_[index(value.root)]] + value.offset};
        case Kind::constant: break;
    }
    return {kNoBase, reinterpret_cast<std::intptr_t>(value.data) + value.offset};
}

}  // namespace dlprim
