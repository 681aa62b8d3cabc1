// Compiled once per target, as per_isa.h describes.
#include "primitives/layers/activation_backward_rows.h"

#include <cstdint>
#include <stdexcept>

#include "primitives/tensor/per_isa.h"

#define HWY_TARGET_INCLUDE "primitives/layers/activation_backward_rows.cpp"
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include <hwy/contrib/math/math-inl.h>
#include "primitives/tensor/channel_vector-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace dlprim {
namespace HWY_NAMESPACE {
namespace {

using Lanes = hn::ScalableTag<float>;
using Values = hn::Vec<Lanes>;

HWY_INLINE Values number(float value) { return hn::Set(Lanes(), value); }

// Beyond it every slope is 0 or 1 in float32.
constexpr float kFar = 30;
// Of exp, so that neither it nor its reciprocal overflows.
constexpr float kMostExponent = 80;

HWY_INLINE Values clamped(Values x, float most) {
    return hn::Max(hn::Min(x, number(most)), number(-most));
}

// sigmoid and its slope, which 1 - sigmoid would leave few digits of.
struct Sigmoids {
    Values value;
    Values slope;
};

HWY_INLINE Sigmoids sigmoid_at(Values x) {
    const auto power = hn::Exp(Lanes(), hn::Max(hn::Neg(hn::Abs(x)), number(-kMostExponent)));
    const auto above = hn::Div(number(1), hn::Add(number(1), power));
    const auto below = hn::Mul(power, above);
    return {hn::IfThenElse(hn::Lt(x, hn::Zero(Lanes())), below, above), hn::Mul(above, below)};
}

// Slopes from the result of the activation.

struct Sigmoid {
    static HWY_INLINE Values slope(Values y) { return hn::Mul(y, hn::Sub(number(1), y)); }
};

struct Tanh {
    static HWY_INLINE Values slope(Values y) { return hn::NegMulAdd(y, y, number(1)); }
};

// Slopes from what the activation was applied to.

struct Swish {
    static HWY_INLINE Values slope(Values z) {
        const auto near = clamped(z, kMostExponent);
        const Sigmoids s = sigmoid_at(near);
        return hn::MulAdd(near, s.slope, s.value);
    }
};

// (1 + tanh u) / 2 = sigmoid(2 u), whose derivative is 2 sigmoid'(2 u) u'.
struct GeluTanh {
    static HWY_INLINE Values slope(Values z) {
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
    static HWY_INLINE Values slope(Values z) {
        constexpr float kDensity = 0.3989422804F;  // 1 / sqrt(2 pi)
        constexpr float kArgument = 0.3275911F * 0.7071067812F;
        const auto near = clamped(z, kFar);
        const auto bell = hn::Exp(
            Lanes(), hn::Max(hn::Mul(hn::Mul(near, near), number(-0.5F)), number(-kMostExponent)));
        const auto t = hn::Div(number(1), hn::MulAdd(number(kArgument), hn::Abs(near), number(1)));
        auto tail = number(1.061405429F);
        for (const float coefficient : {-1.453152027F, 1.421413741F, -0.284496736F, 0.254829592F}) {
            tail = hn::MulAdd(tail, t, number(coefficient));
        }
        const auto half = hn::Mul(hn::Mul(tail, t), hn::Mul(bell, number(0.5F)));
        const auto below = hn::Lt(near, hn::Zero(Lanes()));
        const auto phi = hn::IfThenElse(below, half, hn::Sub(number(1), half));
        return hn::MulAdd(hn::Mul(near, number(kDensity)), bell, phi);
    }
};

// A clamped NaN may have become a number.
template <class Kind>
HWY_INLINE Values gradient(Values diff_dst, Values saved) {
    const auto slope = hn::IfThenElse(hn::IsNaN(saved), saved, Kind::slope(saved));
    return hn::Mul(diff_dst, slope);
}

template <class Kind, class Element>
HWY_INLINE void pass(ChannelVector<Element>& diff, const ChannelVector<Element>& saved) {
#if HWY_TARGET == HWY_SCALAR
    diff.value = hn::GetLane(gradient<Kind>(number(diff.value), number(saved.value)));
#else
    if constexpr (std::is_same_v<Element, float>) {
        diff.values = gradient<Kind>(diff.values, saved.values);
    } else {
        diff.even = gradient<Kind>(diff.even, saved.even);
        diff.odd = gradient<Kind>(diff.odd, saved.odd);
    }
#endif
}

template <class Kind, class Element>
void along(const ActivationRow& row) {
    using Channels = ChannelVector<Element>;
    const auto* const diff_dst = static_cast<const Element*>(row.diff_dst);
    const auto* const saved = static_cast<const Element*>(row.saved);
    auto* const out = static_cast<Element*>(row.out);
    const auto step = [&](std::int64_t i, auto part) {
        auto diff = Channels::load(diff_dst + i, part);
        pass<Kind>(diff, Channels::load(saved + i, part));
        diff.store(out + i, part);
    };
    std::int64_t i = 0;
    for (; i + Channels::kChannels <= row.count; i += Channels::kChannels) step(i, All());
    if (i < row.count) step(i, First{row.count - i});
}

template <class Kind>
ActivationRowFunction function_of(DType dtype) {
    return dtype == DType::f32 ? along<Kind, float> : along<Kind, std::uint16_t>;
}

ActivationRowFunction activation_row_of(DType dtype, Activation activation) {
    switch (activation) {
        case Activation::sigmoid: return function_of<Sigmoid>(dtype);
        case Activation::tanh: return function_of<Tanh>(dtype);
        case Activation::gelu: return function_of<Gelu>(dtype);
        case Activation::gelu_tanh: return function_of<GeluTanh>(dtype);
        default: return function_of<Swish>(dtype);
    }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dlprim
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dlprim {

ActivationRowFunction activation_row_function(Isa isa, DType dtype, Activation activation) {
    return DLPRIM_FOR_ISA(isa, activation_row_of)(dtype, activation);
}

}  // namespace dlprim
#endif
