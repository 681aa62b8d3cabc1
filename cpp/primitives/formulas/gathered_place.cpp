#include "primitives/formulas/gathered_place.h"

#include <algorithm>
#include <limits>
#include <type_traits>
#include <vector>

namespace dlprim {
namespace {

// Whether all of so many neighbours are from 0 to `last`: in half the time of their extremes.
template <class Place>
bool lie_within(const char* places, std::int64_t count, std::int64_t last) {
    using Bits = std::make_unsigned_t<Place>;
    const auto most =
        static_cast<Bits>(std::min(last, std::int64_t{std::numeric_limits<Place>::max()}));
    Bits outside = 0;  // the sign bits of those that are negative, or are so taken from the last
    for (std::int64_t i = 0; i < count; ++i, places += sizeof(Place)) {
        Bits value = 0;
        std::memcpy(&value, places, sizeof(value));
        outside |= value | (most - value);
    }
    return static_cast<Place>(outside) >= 0;
}

}  // namespace

std::pair<std::int64_t, std::int64_t> outermost(const BoundStatement& statement,
                                                std::size_t operand, const void* places,
                                                const GatheredPlace& place) {
    const BoundOperand& it = statement.operands[operand];
    std::pair<std::int64_t, std::int64_t> found{std::numeric_limits<std::int64_t>::max(),
                                                std::numeric_limits<std::int64_t>::min()};
    std::vector<std::pair<std::int64_t, std::int64_t>> loops;  // extents and distances
    for (std::size_t i = 0; i < statement.indices.size(); ++i) {
        const std::int64_t extent = statement.indices[i].extent;
        if (extent == 0) return found;
        if (it.strides[i] == 0) continue;
        if (loops.empty() || loops.back().second != extent * it.strides[i]) {
            loops.emplace_back(extent, it.strides[i]);
        } else {
            loops.back() = {loops.back().first * extent, it.strides[i]};
        }
    }
    if (loops.empty()) loops.emplace_back(1, 0);
    const std::int64_t last = place.extent - 1;
    const auto all_inside = [&](std::int64_t at, std::int64_t count) {
        const char* const first = static_cast<const char*>(places) + at * size_of(DType::s32);
        return place.is_wide ? lie_within<std::int64_t>(first, count, last)
                             : lie_within<std::int32_t>(first, count, last);
    };
    const auto visit = [&](const auto& self, std::size_t loop, std::int64_t at) -> void {
        const auto [extent, stride] = loops[loop];
        const bool is_last = loop + 1 == loops.size();
        if (!is_last) {
            for (std::int64_t i = 0; i < extent; ++i) self(self, loop + 1, at + i * stride);
            return;
        }
        if (stride == (place.is_wide ? 2 : 1) && all_inside(at, extent)) return;
        auto [least, most] = found;
        for_values(places, place.is_wide, at, stride, extent, [&](std::int64_t value) {
            least = std::min(least, value);
            most = std::max(most, value);
        });
        found = {least, most};
    };
    visit(visit, 0, it.offset);
    return found;
}

}  // namespace dlprim
