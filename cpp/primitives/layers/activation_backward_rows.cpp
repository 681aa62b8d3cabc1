// Compiled once per target, as per_isa.h describes.
#include <cstdint>
#include <type_traits>

#include "primitives/layers/channel_panels.h"
#include "primitives/tensor/per_isa.h"

#define HWY_TARGET_INCLUDE "primitives/layers/activation_backward_rows.cpp"
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include <hwy/contrib/math/math-inl.h>
#include "primitives/layers/channel_strip-inl.h"
#include "primitives/layers/relu_gates-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace dlprim {
namespace HWY_NAMESPACE {
namespace {

// Beyond it every slope is 0 or 1 in float32.
constexpr float kFar = 30;
// Of exp, so that neither it nor its reciprocal overflows.
constexpr float kMostExponent = 80;

HWY_INLINE FloatVector clamped(FloatVector x, float most) {
    return hn::Max(hn::Min(x, number(most)), number(-most));
}

// sigmoid and its slope, which 1 - sigmoid would leave few digits of.
struct Sigmoids {
    FloatVector value;
    FloatVector slope;
};

HWY_INLINE Sigmoids sigmoid_at(FloatVector x) {
    const auto power = hn::Exp(Floats(), hn::Max(hn::Neg(hn::Abs(x)), number(-kMostExponent)));
    const auto above = hn::Div(number(1), hn::Add(number(1), power));
    const auto below = hn::Mul(power, above);
    return {hn::IfThenElse(hn::Lt(x, hn::Zero(Floats())), below, above), hn::Mul(above, below)};
}

// Slopes from the result of the activation.

struct Sigmoid {
    static HWY_INLINE FloatVector slope(FloatVector y) { return hn::Mul(y, hn::Sub(number(1), y)); }
};

struct Tanh {
    static HWY_INLINE FloatVector slope(FloatVector y) { return hn::NegMulAdd(y, y, number(1)); }
};

// Slopes from what the activation was applied to.

struct Swish {
    static HWY_INLINE FloatVector slope(FloatVector z) {
        const auto near = clamped(z, kMostExponent);
        const Sigmoids s = sigmoid_at(near);
        return hn::MulAdd(near, s.slope, s.value);
    }
};

// (1 + tanh u) / 2 = sigmoid(2 u), whose derivative is 2 sigmoid'(2 u) u'.
struct GeluTanh {
    static HWY_INLINE FloatVector slope(FloatVector z) {
        constexpr float kRoot = 0.7978845608F;  // sqrt(2 / pi)
        constexpr float kCubic = 0.044715F;
        const auto near = clamped(z, kFar);
        const auto square = hn::Mul(near, near);
        const auto u =
            hn::Mul(hn::Mul(number(kRoot), near), hn::MulAdd(number(kCubic), square, number(1)));
        const auto du = hn::Mul(number(kRoot), hn::MulAdd(number(3 * kCubic), square, number(1)));
        const Sigmoids s = sigmoid_at(hn::Add(u, u));
        return hn::MulAdd(hn::Mul(near, hn::Add(s.slope, s.slope)), du, s.value);
    }
};

// Phi(z) + z phi(z). erf is Abramowitz and Stegun's 7.1.26: within 1.5e-7 of the normal
// distribution, and it needs the exponential that the density needs.
struct Gelu {
    static HWY_INLINE FloatVector slope(FloatVector z) {
        constexpr float kDensity = 0.3989422804F;  // 1 / sqrt(2 pi)
        constexpr float kArgument = 0.3275911F * 0.7071067812F;
        const auto near = clamped(z, kFar);
        const auto bell = hn::Exp(
            Floats(), hn::Max(hn::Mul(hn::Mul(near, near), number(-0.5F)), number(-kMostExponent)));
        const auto t = hn::Div(number(1), hn::MulAdd(number(kArgument), hn::Abs(near), number(1)));
        auto tail = number(1.061405429F);
        for (const float coefficient : {-1.453152027F, 1.421413741F, -0.284496736F, 0.254829592F}) {
            tail = hn::MulAdd(tail, t, number(coefficient));
        }
        const auto half = hn::Mul(hn::Mul(tail, t), hn::Mul(bell, number(0.5F)));
        const auto below = hn::Lt(near, hn::Zero(Floats()));
        const auto phi = hn::IfThenElse(below, half, hn::Sub(number(1), half));
        return hn::MulAdd(hn::Mul(near, number(kDensity)), bell, phi);
    }
};

// A clamped NaN may have become a number.
template <class Kind>
struct Gradient {
    HWY_INLINE FloatVector operator()(FloatVector diff_dst, FloatVector saved) const {
        const auto slope = hn::IfThenElse(hn::IsNaN(saved), saved, Kind::slope(saved));
        return hn::Mul(diff_dst, slope);
    }
};

// Called as the gates of relu_gates-inl.h.
template <class Element, class Kind>
struct SlopeGate {
    const Element* saved;
    std::int64_t distance;

    template <InRegisters V, class Part>
    HWY_INLINE V operator()(const V& diff, const V&, std::int64_t pixel, std::int64_t channel,
                            Part part) const {
        return each(Gradient<Kind>(), diff, V::load(saved + pixel * distance + channel, part));
    }
};

template <class Element, class Gate, bool kExact>
struct GradientRow {
    const PixelRows& it;
    const Gate& gate;

    template <std::int64_t kVectors, class Part>
    HWY_INLINE void strip(Range pixels, std::int64_t channel, std::int64_t ahead, Part part) const {
        using Strip = HWY_NAMESPACE::Strip<Element, kVectors>;
        using Vector = ChannelVector<Element>;
        const auto* const diff = static_cast<const Element*>(it.diff_dst);
        auto* const out = static_cast<Element*>(it.out);
        auto sums = it.sums == nullptr ? Strip::zero() : Strip::of(it.sums, channel, part);
        for (std::int64_t pixel = pixels.begin; pixel < pixels.end; ++pixel) {
            for (std::int64_t i = 0; i < kVectors; ++i) {
                const std::int64_t column = channel + i * Vector::kChannels;
                const std::int64_t at = pixel * it.distance + column;
                prefetch<1>(diff + at + ahead, 0);
                const auto arrived = Vector::load(diff + at, part);
                auto passed = gate(arrived, arrived, pixel, column, part);
                if constexpr (kExact) {
                    if (out != nullptr) passed.store_exactly(out + at, part);
                } else {
                    passed.store(out + at, part);
                    passed = Vector::load(out + at, part);  // rounded
                }
                sums.at[i].add(passed);
            }
        }
        if (it.sums != nullptr) sums.store(it.sums, channel, part);
    }
};

// At a time, about in the order of the memory: there is little to keep for a channel.
constexpr std::int64_t kFewPixels = 8;

template <class Element>
void pass_gated(const PixelRows& it) {
    with_stored_gate<Element>(it, [&](const auto& gate) HWY_ATTR {
        in_strips<Element>(it, GradientRow<Element, std::decay_t<decltype(gate)>, true>{it, gate},
                           kFewPixels);
    });
}

template <class Element, class Kind>
void multiply_by_slope(const PixelRows& it) {
    const SlopeGate<Element, Kind> gate{static_cast<const Element*>(it.saved), it.distance};
    in_strips<Element>(it, GradientRow<Element, SlopeGate<Element, Kind>, false>{it, gate},
                       kFewPixels);
}

template <class Element>
PixelFunction function_of(Activation activation) {
    switch (activation) {
        case Activation::none:
        case Activation::relu: return pass_gated<Element>;
        case Activation::sigmoid: return multiply_by_slope<Element, Sigmoid>;
        case Activation::tanh: return multiply_by_slope<Element, Tanh>;
        case Activation::gelu: return multiply_by_slope<Element, Gelu>;
        case Activation::gelu_tanh: return multiply_by_slope<Element, GeluTanh>;
        default: return multiply_by_slope<Element, Swish>;
    }
}

PixelFunction gradient_of(DType dtype, Activation activation) {
    return dtype == DType::f32 ? function_of<float>(activation)
                               : function_of<std::uint16_t>(activation);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dlprim
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dlprim {

PixelFunction gradient_function(Isa isa, DType dtype, Activation activation) {
    return DLPRIM_FOR_ISA(isa, gradient_of)(dtype, activation);
}

}  // namespace dlprim
#endif
