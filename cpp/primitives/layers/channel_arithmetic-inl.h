// Arithmetic on neighbouring channels (channel_vector-inl.h): what element-wise layers compute,
// once for both types and all vector widths.
#if defined(DLPRIM_PRIMITIVES_CHANNEL_ARITHMETIC_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef DLPRIM_PRIMITIVES_CHANNEL_ARITHMETIC_INL_H
#undef DLPRIM_PRIMITIVES_CHANNEL_ARITHMETIC_INL_H
#else
#define DLPRIM_PRIMITIVES_CHANNEL_ARITHMETIC_INL_H
#endif

#include <cstdint>
#include <cstring>
#include <type_traits>

#include <hwy/highway.h>

#include "primitives/tensor/channel_vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dlprim {
namespace HWY_NAMESPACE {

using FloatLanes = hn::ScalableTag<float>;
using FloatVector = hn::Vec<FloatLanes>;

// f of the registers of all operands.
#if HWY_TARGET == HWY_SCALAR
template <class F, class Element, class... Others>
HWY_INLINE ChannelVector<Element> each(F f, const ChannelVector<Element>& x,
                                       const Others&... others) {
    const FloatLanes d;
    return {hn::GetLane(f(hn::Set(d, x.value), hn::Set(d, others.value)...))};
}
#else
template <class F, class... Others>
HWY_INLINE ChannelVector<float> each(F f, const ChannelVector<float>& x, const Others&... others) {
    return {f(x.values, others.values...)};
}
template <class F, class... Others>
HWY_INLINE ChannelVector<std::uint16_t> each(F f, const ChannelVector<std::uint16_t>& x,
                                             const Others&... others) {
    return {f(x.even, others.even...), f(x.odd, others.odd...)};
}
#endif

template <class Element>
HWY_INLINE ChannelVector<Element> all_of(float value) {
    const FloatVector values = hn::Set(FloatLanes(), value);
#if HWY_TARGET == HWY_SCALAR
    return {hn::GetLane(values)};
#else
    if constexpr (std::is_same_v<Element, float>) {
        return {values};
    } else {
        return {values, values};
    }
#endif
}

struct Sum {
    HWY_INLINE FloatVector operator()(FloatVector x, FloatVector y) const { return hn::Add(x, y); }
};
struct Difference {
    HWY_INLINE FloatVector operator()(FloatVector x, FloatVector y) const { return hn::Sub(x, y); }
};
struct Product {
    HWY_INLINE FloatVector operator()(FloatVector x, FloatVector y) const { return hn::Mul(x, y); }
};
// x * y + z
struct ProductSum {
    HWY_INLINE FloatVector operator()(FloatVector x, FloatVector y, FloatVector z) const {
        return hn::MulAdd(x, y, z);
    }
};
// z - x * y
struct ProductDifference {
    HWY_INLINE FloatVector operator()(FloatVector x, FloatVector y, FloatVector z) const {
        return hn::NegMulAdd(x, y, z);
    }
};
// x, or 0 where `result` <= 0: a NaN lets it pass. With And, not by a mask: see
// relu_backward_rows.cpp.
struct Passed {
    HWY_INLINE FloatVector operator()(FloatVector x, FloatVector result) const {
        const FloatLanes d;
        return hn::AndNot(hn::VecFromMask(d, hn::Le(result, hn::Zero(d))), x);
    }
};
struct Bits {
    HWY_INLINE FloatVector operator()(FloatVector x, FloatVector ones) const {
        return hn::And(x, ones);
    }
};

template <class Element>
HWY_INLINE ChannelVector<Element> operator+(const ChannelVector<Element>& x,
                                            const ChannelVector<Element>& y) {
    return each(Sum(), x, y);
}
template <class Element>
HWY_INLINE ChannelVector<Element> operator-(const ChannelVector<Element>& x,
                                            const ChannelVector<Element>& y) {
    return each(Difference(), x, y);
}
template <class Element>
HWY_INLINE ChannelVector<Element> operator*(const ChannelVector<Element>& x,
                                            const ChannelVector<Element>& y) {
    return each(Product(), x, y);
}

// Channels of a row, the last ones as a part of a vector. `row.template columns<k>(channel, part)`
// treats k vectors from `channel` on; k is kMost as often as possible, else 1.
template <class Element, std::int64_t kMost, class Row>
HWY_INLINE void along_channels(std::int64_t channels, const Row& row) {
    constexpr std::int64_t kStep = ChannelVector<Element>::kChannels;
    std::int64_t channel = 0;
    for (; channel + kMost * kStep <= channels; channel += kMost * kStep) {
        row.template columns<kMost>(channel, All());
    }
    for (; channel + kStep <= channels; channel += kStep) row.template columns<1>(channel, All());
    if (channel < channels) row.template columns<1>(channel, First{channels - channel});
}

}  // namespace HWY_NAMESPACE
}  // namespace dlprim
HWY_AFTER_NAMESPACE();

#endif
