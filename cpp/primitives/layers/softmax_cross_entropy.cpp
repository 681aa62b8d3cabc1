// Compiled once per target, as per_isa.h describes.
#include "primitives/layers/softmax_cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "jit/isa.h"
#include "primitives/tensor/parallel.h"
#include "primitives/tensor/partition.h"
#include "primitives/tensor/per_isa.h"

#define HWY_TARGET_INCLUDE "primitives/layers/softmax_cross_entropy.cpp"
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include <hwy/contrib/math/math-inl.h>
#include "primitives/layers/channel_arithmetic-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace dlprim {
namespace HWY_NAMESPACE {
namespace {

struct Larger {
    HWY_INLINE FloatVector operator()(FloatVector x, FloatVector y) const { return hn::Max(x, y); }
};
// exp(x) of x <= 0: 0 below float32's range, NaN for NaN (hn::Exp clamps it away).
struct Exponential {
    HWY_INLINE FloatVector operator()(FloatVector x) const {
        return hn::IfThenElse(hn::IsNaN(x), x, hn::Exp(Floats(), x));
    }
};

template <InRegisters V>
float in_order(const V& x) {
    HWY_ALIGN float copy[static_cast<std::size_t>(V::kChannels)];
    x.store_floats(copy);
    float sum = 0;
    for (const float value : copy) sum += value;
    return sum;
}

template <InRegisters V>
float largest(const V& x) {
    constexpr std::size_t kCount = static_cast<std::size_t>(V::kChannels);
    HWY_ALIGN float copy[kCount];
    x.store_floats(copy);
    return *std::max_element(copy, copy + kCount);
}

template <class Element>
float single(const Element* value) {
    HWY_ALIGN float copy[static_cast<std::size_t>(ChannelVector<Element>::kChannels)];
    ChannelVector<Element>::load(value, First{1}).store_floats(copy);
    return copy[0];
}

// Whole vectors, then the rest, whose missing lanes hold `filling`.
template <class Element, class Body>
HWY_INLINE void along(const Element* row, std::int64_t count, float filling, const Body& body) {
    using Vector = ChannelVector<Element>;
    std::int64_t i = 0;
    for (; i + Vector::kChannels <= count; i += Vector::kChannels) {
        body(Vector::load(row + i, All()), i, All());
    }
    if (i == count) return;
    const First part{count - i};
    float mask[static_cast<std::size_t>(Vector::kChannels)] = {};
    std::fill(mask + part.count, mask + Vector::kChannels, filling);
    // Lanes that do not exist were loaded as 0.
    body(Vector::load(row + i, part) + Vector::load_floats(mask), i, part);
}

// Classes whose powers are added in float32, a multiple of every vector.
constexpr std::int64_t kChain = 512;

// The loss of a row; its gradient times `scale` goes to `out`, if any. Exponentials wait in
// `scratch`.
template <class Element>
float row_loss(const Element* row, std::int64_t classes, std::int64_t target, float scale,
               Element* out, float* scratch) {
    using Vector = ChannelVector<Element>;
    constexpr float kLowest = -std::numeric_limits<float>::infinity();
    Vector highest = all_of<Element>(kLowest);
    along(row, classes, kLowest, [&](const Vector& x, std::int64_t, auto) HWY_ATTR {
        highest = each(Larger(), highest, x);
    });
    const float top = largest(highest);
    const Vector shift = all_of<Element>(top);
    double all = 0;
    for (std::int64_t first = 0; first < classes; first += kChain) {
        Vector sum = Vector::zero();
        along(row + first, std::min(classes - first, kChain), kLowest,
              [&](const Vector& x, std::int64_t i, auto) HWY_ATTR {
                  const Vector power = each(Exponential(), x - shift);
                  power.store_floats(scratch + first + i);
                  sum.add(power);
              });
        all += in_order(sum);
    }
    const auto powers = static_cast<float>(all);
    const float loss = std::log(powers) + top - single(row + target);
    if (out == nullptr) return loss;
    scratch[target] -= powers;
    const Vector share = all_of<Element>(scale / powers);
    along(row, classes, 0, [&](const Vector&, std::int64_t i, auto part) HWY_ATTR {
        (Vector::load_floats(scratch + i) * share).store(out + i, part);
    });
    return loss;
}

template <class Element>
float row_of(const SoftmaxCrossEntropy& it, std::int64_t row, float scale, float* scratch) {
    Element* out = static_cast<Element*>(it.diff_logits);
    if (out != nullptr) out += row * it.classes;
    const std::int64_t target = it.targets[row];
    if (target == it.ignored) {
        if (out != nullptr) std::fill_n(out, it.classes, Element{0});
        return 0;
    }
    return row_loss(static_cast<const Element*>(it.logits) + row * it.classes, it.classes, target,
                    scale, out, scratch);
}

auto row_function_of(DType dtype) {
    return dtype == DType::f32 ? row_of<float> : row_of<std::uint16_t>;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dlprim
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dlprim {
namespace {

constexpr std::int64_t kTaskElements = 32 * 1024;
constexpr std::int64_t kLongestVector = 32;  // elements

}  // namespace

double softmax_cross_entropy(const SoftmaxCrossEntropy& problem) {
    const auto counted =
        problem.rows - std::count(problem.targets, problem.targets + problem.rows, problem.ignored);
    const auto scale =
        static_cast<float>(1.0 / static_cast<double>(std::max<std::int64_t>(counted, 1)));
    const auto function = DLPRIM_FOR_ISA(usable_isa(), row_function_of)(problem.dtype);
    std::vector<float> losses(static_cast<std::size_t>(problem.rows));
    const Blocks tasks{problem.rows, std::max<std::int64_t>(kTaskElements / problem.classes, 1)};
    parallel_for(tasks.count(), [&](std::int64_t task) {
        std::vector<float> scratch(static_cast<std::size_t>(problem.classes + kLongestVector));
        const Range range = tasks.at(task);
        for (std::int64_t row = range.begin; row < range.end; ++row) {
            losses[static_cast<std::size_t>(row)] = function(problem, row, scale, scratch.data());
        }
    });
    double sum = 0;
    for (const float loss : losses) sum += loss;
    return sum / static_cast<double>(counted);  // 0 / 0 where nothing counts
}

}  // namespace dlprim
#endif
