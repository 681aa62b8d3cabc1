// Index ranges, as pure arithmetic: how a dimension is cut into blocks and how tasks are dealt to
// threads. Nothing here knows about threads or memory, so all of it is tested by enumeration.
#pragma once

#include <algorithm>
#include <cstdint>

namespace dlprim {

// The next multiple of `unit`.
constexpr std::int64_t rounded_up(std::int64_t value, std::int64_t unit) {
    return (value + unit - 1) / unit * unit;
}

inline constexpr std::int64_t kCacheLineBytes = 64;

// Bytes, up to the end of the last cache line that they begin: where the next piece of scratch
// may stand.
constexpr std::int64_t aligned(std::int64_t bytes) { return rounded_up(bytes, kCacheLineBytes); }

struct Range {
    std::int64_t begin = 0;
    std::int64_t end = 0;

    std::int64_t size() const { return end - begin; }

    friend bool operator==(const Range&, const Range&) = default;
};

// [0, extent) in blocks of `block`, the last one ragged. A block may be anything up to 2^63 - 1,
// as the steps of schedules may.
struct Blocks {
    std::int64_t extent = 0;
    std::int64_t block = 1;

    std::int64_t count() const { return extent / block + (extent % block > 0 ? 1 : 0); }
    Range at(std::int64_t index) const {
        return {index * block, std::min((index + 1) * block, extent)};
    }
};

// Equal parts of `extent`, none longer than about `step`, whole multiples of `unit` but the last.
constexpr std::int64_t equal_step(std::int64_t extent, std::int64_t step, std::int64_t unit) {
    const std::int64_t parts = std::max<std::int64_t>((extent + step - 1) / step, 1);
    return std::min(rounded_up((extent + parts - 1) / parts, unit),
                    std::max<std::int64_t>(extent, 1));
}

// The part of [0, total) that falls to `part` of `parts`: contiguous, sizes differ by at most one.
constexpr Range chunk(std::int64_t total, std::int64_t parts, std::int64_t part) {
    const std::int64_t small = total / parts;
    const std::int64_t larger = total % parts;
    const std::int64_t begin = part * small + std::min(part, larger);
    return {begin, begin + small + (part < larger ? 1 : 0)};
}

// The place in a list of `total` of the task of that number, where each part (chunk()) has every
// parts-th place of the list from its own number on.
constexpr std::int64_t dealt(std::int64_t total, std::int64_t parts, std::int64_t task) {
    const std::int64_t small = total / parts;
    const std::int64_t in_larger = total % parts * (small + 1);
    if (task < in_larger) return task % (small + 1) * parts + task / (small + 1);
    const std::int64_t rest = task - in_larger;
    return rest % small * parts + total % parts + rest / small;
}

// An element of one of two lists that are merged evenly: any part of the whole has about the same
// part of either.
struct Merged {
    bool is_first = false;  // of the first list
    std::int64_t index = 0;

    friend bool operator==(const Merged&, const Merged&) = default;
};

constexpr Merged merged(std::int64_t first, std::int64_t second, std::int64_t i) {
    const std::int64_t before = i * first / (first + second);
    const bool is_first = (i + 1) * first / (first + second) > before;
    return {is_first, is_first ? before : i - before};
}

}  // namespace dlprim
