#include "primitives/nest/fixed_parts.h"

#include <algorithm>

#include "jit/isa.h"
#include "primitives/tensor/pack_rows.h"

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

float* FixedParts::sums(std::int64_t part, void* result, char* scratch) const {
    const std::int64_t copy = part - (count_ - copies());
    if (copy < 0) return static_cast<float*>(result);
    return reinterpret_cast<float*>(scratch + copy * aligned(elements_ * size_of(DType::f32)));
}

void FixedParts::add(void* result, char* scratch) const {
    if (copies() == 0) return;
    const Blocks pieces{elements_, kElementsAtOnce};
    const auto round = row_functions(usable_isa()).round;
    parallel_for(pieces.count(), [&](std::int64_t piece) {
        const Range range = pieces.at(piece);
        // The first sums of this thread's piece stay in its caches while the others are added.
        float* const total = sums(0, result, scratch);
        for (std::int64_t part = 1; part < count_; ++part) {
            dlprim::add(sums(part, result, scratch), range, total);
        }
        if (to_ == DType::f32) return;
        round(total + range.begin, static_cast<std::uint16_t*>(result) + range.begin, range.size());
    });
}

}  // namespace dlprim
