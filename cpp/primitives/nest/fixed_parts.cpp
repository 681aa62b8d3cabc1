#include "primitives/nest/fixed_parts.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "jit/isa.h"
#include "primitives/reorder/serial_moves.h"

namespace dlprim {
namespace {

// Elements that are added up at a time.
constexpr std::int64_t kElementsAtOnce = 4096;

void add(const float* addends, Range elements, float* sums) {
    for (std::int64_t i = elements.begin; i < elements.end; ++i) sums[i] += addends[i];
}

}  // namespace

void add_in_order(const SumCopies& copies, Range elements) {
    for (std::int64_t part = 1; part < copies.count; ++part) {
        add(copies.copy(part), elements, copies.first);
    }
}

void add_as_tree(const SumCopies& copies, Range elements) {
    for (std::int64_t step = 1; step < copies.count; step *= 2) {
        for (std::int64_t part = 0; part + step < copies.count; part += 2 * step) {
            add(copies.copy(part + step), elements, copies.copy(part));
        }
    }
}

SumSchedule sum_schedule(const Schedule& schedule, const Loop& loop, std::int64_t most) {
    SumSchedule made{.within = schedule};
    std::vector<Level>& levels = made.within.levels;
    const auto is_of_loop = [&](const Level& level) { return level.letter == loop.letter; };
    if (levels.empty() || !is_of_loop(levels.front()) || !levels.front().parallel) return made;
    const Level outer = levels.front();
    if (outer.step < 1) return made;
    levels.erase(levels.begin());
    if (std::none_of(levels.begin(), levels.end(), is_of_loop)) {
        levels.push_back({loop.letter, outer.step});
    }
    made.parts = std::max<std::int64_t>(Blocks{loop.extent, outer.step}.count(), 1);
    if (made.parts > most) {
        throw std::invalid_argument("schedule '" + to_string(schedule) + "' sums loop " +
                                    loop.letter + " in " + std::to_string(made.parts) +
                                    " parts, expected at most " + std::to_string(most));
    }
    return made;
}

Schedule with_parts(const Schedule& within, const Loop& loop, std::int64_t parts) {
    Schedule schedule = within;
    if (parts > 1) {
        const std::int64_t step = (loop.extent + parts - 1) / parts;
        schedule.levels.insert(schedule.levels.begin(), {loop.letter, step, true});
    }
    return schedule;
}

std::int64_t even_parts(std::int64_t extent, std::int64_t most) {
    std::int64_t parts = 1;
    for (std::int64_t more = 2; more <= std::min(extent, most); more *= 2) {
        const std::int64_t step = (extent + more - 1) / more;
        if (Blocks{extent, step}.count() == more) parts = more;
    }
    return parts;
}

float* FixedParts::sums(std::int64_t part, void* result, char* scratch) const {
    const std::int64_t copy = part - (count_ - copies());
    if (copy < 0) return static_cast<float*>(result);
    return reinterpret_cast<float*>(scratch + copy * aligned(elements_ * size_of(DType::f32)));
}

void FixedParts::add(void* result, char* scratch) const {
    if (copies() == 0) return;
    const Blocks pieces{elements_, kElementsAtOnce};
    parallel_for(pieces.count(), [&](std::int64_t piece) {
        const Range range = pieces.at(piece);
        // The first sums of this thread's piece stay in its caches while the others are added.
        float* const total = sums(0, result, scratch);
        for (std::int64_t part = 1; part < count_; ++part) {
            dlprim::add(sums(part, result, scratch), range, total);
        }
        if (to_ == DType::f32) return;
        round_row(total + range.begin, static_cast<std::uint16_t*>(result) + range.begin, range.size());
    });
}

}  // namespace dlprim
