#include "graph/branches.h"

#include <algorithm>
#include <numeric>

namespace dlprim {
namespace {

// What two threads save of the least work that earns them: no stretch is made that saves less.
constexpr double kLeastSaved = 0.5;
// What it takes to give a single step to all threads.
constexpr double kShared = 1.0 / 8;

// The connected steps of a stretch that grows.
class Components {
public:
    void add(double work) {
        parents_.push_back(parents_.size());
        works_.push_back(work);
        total_ += work;
        longest_ = std::max(longest_, work);
    }

    void join(std::size_t one, std::size_t other) {
        const std::size_t to = of(one), from = of(other);
        if (to == from) return;
        parents_[from] = to;
        works_[to] += works_[from];
        longest_ = std::max(longest_, works_[to]);
    }

    // A step that stands for all of its component.
    std::size_t of(std::size_t step) {
        while (parents_[step] != step) step = parents_[step] = parents_[parents_[step]];
        return step;
    }

    double work_of(std::size_t step) { return works_[of(step)]; }
    double total() const { return total_; }
    double longest() const { return longest_; }
    // By two threads.
    double saved() const { return std::min(total_ / 2, total_ - longest_); }

private:
    std::vector<std::size_t> parents_ = {};
    std::vector<double> works_ = {};
    double total_ = 0;
    double longest_ = 0;
};

void take(const std::vector<StepCost>& steps, std::size_t begin, std::size_t step,
          Components& found) {
    found.add(steps[step].work);
    for (const std::size_t before : steps[step].after) {
        if (before >= begin) found.join(before - begin, step - begin);
    }
}

bool may_be_beside(const StepCost& step) { return !step.alone && step.work < 1; }

// Of all ways to cut the list, the one whose stretches save most: for every step the first one of
// the stretch that ends behind it, or itself.
std::vector<std::size_t> first_steps(const std::vector<StepCost>& steps) {
    std::vector<double> best(steps.size() + 1, 0);
    std::vector<std::size_t> first(steps.size());
    std::iota(first.begin(), first.end(), std::size_t{0});
    for (std::size_t begin = 0; begin < steps.size(); ++begin) {
        if (best[begin] >= best[begin + 1]) {
            best[begin + 1] = best[begin];
            first[begin] = begin;
        }
        Components found;
        const std::size_t most = std::min(steps.size(), begin + kLongestStretch);
        for (std::size_t step = begin; step < most && may_be_beside(steps[step]); ++step) {
            if (step > begin && steps[step].begins) break;
            take(steps, begin, step, found);
            const double saved = best[begin] + found.saved() - kLeastSaved;
            if (saved > best[step + 1]) {
                best[step + 1] = saved;
                first[step] = begin;
            }
        }
    }
    return first;
}

// Appends the steps from `begin` to `end`, branch by branch.
Stretch add_stretch(const std::vector<StepCost>& steps, std::size_t begin, std::size_t end,
                    std::vector<std::size_t>& order) {
    Components found;
    for (std::size_t step = begin; step < end; ++step) take(steps, begin, step, found);
    std::vector<std::size_t> sorted(end - begin);
    std::iota(sorted.begin(), sorted.end(), std::size_t{0});
    std::stable_sort(sorted.begin(), sorted.end(), [&](std::size_t a, std::size_t b) {
        const double one = found.work_of(a), other = found.work_of(b);
        return one != other ? one > other : found.of(a) < found.of(b);
    });
    Stretch made{.longest = found.longest(), .work = found.total()};
    for (std::size_t i = 0; i < sorted.size(); ++i) {
        const auto at = static_cast<std::int64_t>(begin + i);
        if (i == 0 || found.of(sorted[i]) != found.of(sorted[i - 1])) {
            made.branches.push_back({at, at});
        }
        ++made.branches.back().end;
        order.push_back(begin + sorted[i]);
    }
    return made;
}

}  // namespace

bool Stretch::pays(int threads) const {
    const auto count = static_cast<double>(steps().size());
    return threads > 1 && longest <= work / threads + count * kShared;
}

BranchPlan plan_branches(const std::vector<StepCost>& steps) {
    const std::vector<std::size_t> first = first_steps(steps);
    std::vector<Range> pieces;  // from the last one
    for (std::size_t end = steps.size(); end > 0;) {
        const std::size_t begin = first[end - 1];
        pieces.push_back({static_cast<std::int64_t>(begin), static_cast<std::int64_t>(end)});
        end = begin;
    }
    BranchPlan plan;
    for (auto it = pieces.rbegin(); it != pieces.rend(); ++it) {
        const auto begin = static_cast<std::size_t>(it->begin);
        Stretch made = add_stretch(steps, begin, static_cast<std::size_t>(it->end), plan.order);
        if (made.branches.size() > 1) plan.stretches.push_back(std::move(made));
    }
    return plan;
}

}  // namespace dlprim
