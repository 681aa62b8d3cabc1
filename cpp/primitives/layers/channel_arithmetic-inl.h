// Arithmetic on neighbouring channels (channel_vector-inl.h): what element-wise layers compute,
// once for both types and all vector widths.
#if defined(DLPRIM_PRIMITIVES_CHANNEL_ARITHMETIC_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef DLPRIM_PRIMITIVES_CHANNEL_ARITHMETIC_INL_H
#undef DLPRIM_PRIMITIVES_CHANNEL_ARITHMETIC_INL_H
#else
#define DLPRIM_PRIMITIVES_CHANNEL_ARITHMETIC_INL_H
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <hwy/highway.h>

#include "primitives/tensor/channel_vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dlprim {
namespace HWY_NAMESPACE {

// What channel_vector-inl.h has in registers.
template <class V>
concept InRegisters = V::kRegisters > 0;

// f of the registers of all operands.
template <class F, InRegisters V, class... Others>
HWY_INLINE V each(F f, const V& x, const Others&... others) {
    if constexpr (V::kRegisters == 1) {
        return {f(x.values, others.values...)};
    } else {
        return {f(x.even, others.even...), f(x.odd, others.odd...)};
    }
}

template <class Element>
HWY_INLINE ChannelVector<Element> all_of(float value) {
    return ChannelVector<Element>::all_of(number(value));
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
// x, or 0 where `result` <= 0: a NaN lets it pass. With And, not by a mask: the compiler would make
// one masked load of it, which does not start the hardware's prefetching (AMD Zen 5: 6 GB/s from
// memory instead of 26).
struct Passed {
    HWY_INLINE FloatVector operator()(FloatVector x, FloatVector result) const {
        const Floats d;
        return hn::AndNot(hn::VecFromMask(d, hn::Le(result, hn::Zero(d))), x);
    }
};
struct Bits {
    HWY_INLINE FloatVector operator()(FloatVector x, FloatVector ones) const {
        return hn::And(x, ones);
    }
};

template <InRegisters V>
HWY_INLINE V operator+(const V& x, const V& y) {
    return each(Sum(), x, y);
}
template <InRegisters V>
HWY_INLINE V operator-(const V& x, const V& y) {
    return each(Difference(), x, y);
}
template <InRegisters V>
HWY_INLINE V operator*(const V& x, const V& y) {
    return each(Product(), x, y);
}

template <InRegisters V>
HWY_INLINE void store_floats(const V& x, float* dst, All) {
    x.store_floats(dst);
}
template <InRegisters V>
HWY_INLINE void store_floats(const V& x, float* dst, First part) {
    HWY_ALIGN float copy[static_cast<std::size_t>(V::kChannels)];
    x.store_floats(copy);
    std::copy_n(copy, part.count, dst);
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
