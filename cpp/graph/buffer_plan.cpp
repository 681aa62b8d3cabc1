#include "graph/buffer_plan.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <stdexcept>
#include <string>

namespace dlprim {
namespace {

using Order = std::vector<std::size_t>;

// The smallest gap that is large enough between the buffers that are needed at the same time, or
// else the place behind the last of them. `placed` is in the order of offsets.
std::int64_t place_for(std::size_t buffer, const Order& placed,
                       const std::vector<Lifetime>& buffers, const BufferPlan& plan) {
    const std::int64_t bytes = aligned(buffers[buffer].bytes);
    std::int64_t best = -1;
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    std::int64_t end = 0;
    for (const std::size_t other : placed) {
        if (!buffers[other].overlaps(buffers[buffer])) continue;
        const std::int64_t gap = plan.offsets[other] - end;
        if (gap >= bytes && gap < least) {
            best = end;
            least = gap;
        }
        end = std::max(end, plan.offsets[other] + aligned(buffers[other].bytes));
    }
    return best >= 0 ? best : end;
}

BufferPlan placed_in(const Order& order, const std::vector<Lifetime>& buffers) {
    BufferPlan plan{.offsets = std::vector<std::int64_t>(buffers.size(), 0)};
    Order placed;
    for (const std::size_t buffer : order) {
        const std::int64_t offset = place_for(buffer, placed, buffers, plan);
        plan.offsets[buffer] = offset;
        plan.bytes = std::max(plan.bytes, offset + aligned(buffers[buffer].bytes));
        const auto behind =
            std::upper_bound(placed.begin(), placed.end(), offset,
                             [&](std::int64_t it, std::size_t p) { return it < plan.offsets[p]; });
        placed.insert(behind, buffer);
    }
    return plan;
}

// The largest first.
template <class Size>
Order ordered_by(Order order, const Size& size) {
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return size(a) > size(b); });
    return order;
}

struct Change {
    std::int64_t step;
    std::int64_t bytes;
};

std::int64_t most_of(std::vector<Change> changes) {
    std::sort(changes.begin(), changes.end(), [](const Change& a, const Change& b) {
        return a.step != b.step ? a.step < b.step : a.bytes < b.bytes;
    });
    std::int64_t live = 0, most = 0;
    for (const Change& it : changes) most = std::max(most, live += it.bytes);
    return most;
}

// Of the buffers that begin or end in one branch.
struct BranchNeeds {
    Range stretch = {};
    std::vector<Change> changes = {};

    void begin(const Lifetime& it, std::int64_t bytes, bool ends_here) {
        stretch = it.first_in.stretch;
        changes.push_back({it.first, bytes});
        if (ends_here) changes.push_back({it.last + 1, -bytes});
    }
    void end(const Lifetime& it, std::int64_t bytes) {
        stretch = it.last_in.stretch;
        changes.push_back({stretch.begin, bytes});
        changes.push_back({it.last + 1, -bytes});
    }
};

[[noreturn]] void find_wrong(const std::string& sentence) {
    throw std::logic_error("the buffer plan is wrong: " + sentence);
}

}  // namespace

// No one order is the best for all networks, and to try a few takes less than to compile one step.
BufferPlan plan_buffers(const std::vector<Lifetime>& buffers) {
    Order all(buffers.size());
    std::iota(all.begin(), all.end(), std::size_t{0});
    std::erase_if(all, [&](std::size_t i) { return !buffers[i].is_needed(); });
    const auto bytes = [&](std::size_t i) { return buffers[i].bytes; };
    const auto steps = [&](std::size_t i) { return buffers[i].last - buffers[i].first + 1; };
    const std::int64_t least = largest_live_set(buffers);
    BufferPlan best = placed_in(ordered_by(all, bytes), buffers);
    const auto improve = [&](const Order& order) {
        if (best.bytes == least) return;
        BufferPlan plan = placed_in(order, buffers);
        if (plan.bytes < best.bytes) best = std::move(plan);
    };
    improve(ordered_by(all, [&](std::size_t i) { return bytes(i) * steps(i); }));
    improve(ordered_by(ordered_by(all, bytes), steps));
    improve(ordered_by(all, [&](std::size_t i) { return -buffers[i].first; }));
    return best;
}

void Lifetime::use(std::int64_t step, const BranchOf& branch) {
    if (last < first) {
        first = last = step;
        first_in = last_in = branch;
        return;
    }
    const bool is_shared =
        !branch.is_none() && last >= branch.stretch.begin && last_in.number != branch.number;
    if (is_shared && first >= branch.stretch.begin) {
        first = branch.stretch.begin;
        first_in = {};
    }
    last = is_shared ? branch.stretch.end - 1 : step;
    last_in = is_shared ? BranchOf{} : branch;
}

// What is needed in a branch alone changes there, and the most of all branches is what their
// stretch needs; everything else changes between the steps.
std::int64_t largest_live_set(const std::vector<Lifetime>& buffers) {
    std::vector<Change> changes;
    std::map<std::int64_t, BranchNeeds> branches;
    for (const Lifetime& it : buffers) {
        if (!it.is_needed()) continue;
        const std::int64_t bytes = aligned(it.bytes);
        const bool is_local = !it.first_in.is_none() && it.first_in.number == it.last_in.number;
        if (!it.first_in.is_none()) branches[it.first_in.number].begin(it, bytes, is_local);
        if (!it.last_in.is_none() && !is_local) branches[it.last_in.number].end(it, bytes);
        if (is_local) continue;
        // In between, without the stretches in whose branches it begins and ends.
        const std::int64_t begin = it.first_in.is_none() ? it.first : it.first_in.stretch.end;
        const std::int64_t end = it.last_in.is_none() ? it.last + 1 : it.last_in.stretch.begin;
        changes.push_back({begin, bytes});
        changes.push_back({end, -bytes});
    }
    for (const auto& [number, needs] : branches) {
        const std::int64_t most = most_of(needs.changes);
        changes.push_back({needs.stretch.begin, most});
        changes.push_back({needs.stretch.end, -most});
    }
    return most_of(std::move(changes));
}

void require_valid(const BufferPlan& plan, const std::vector<Lifetime>& buffers) {
    if (plan.offsets.size() != buffers.size()) find_wrong("it is of other buffers");
    Order seen;
    for (std::size_t i = 0; i < buffers.size(); ++i) {
        if (!buffers[i].is_needed()) continue;
        const std::int64_t begin = plan.offsets[i], end = begin + buffers[i].bytes;
        if (begin < 0 || end > plan.bytes || begin % kCacheLineBytes != 0) {
            find_wrong("buffer " + std::to_string(i) + " is at " + std::to_string(begin));
        }
        for (const std::size_t j : seen) {
            const Lifetime& other = buffers[j];
            const bool shares = begin < plan.offsets[j] + other.bytes && plan.offsets[j] < end;
            if (shares && other.overlaps(buffers[i])) {
                find_wrong("buffers " + std::to_string(j) + " and " + std::to_string(i) +
                           " are needed at the same time and share memory");
            }
        }
        seen.push_back(i);
    }
}

}  // namespace dlprim
