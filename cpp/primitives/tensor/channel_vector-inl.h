// Neighbouring channels of float32 or bfloat16 tensors as float32 in registers, for the files that
// are compiled once per vector width. bfloat16 keeps a register of even and one of odd channels:
// widening is then a shift or a mask, and rounding needs no shuffle either.
#if defined(DLPRIM_PRIMITIVES_CHANNEL_VECTOR_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef DLPRIM_PRIMITIVES_CHANNEL_VECTOR_INL_H
#undef DLPRIM_PRIMITIVES_CHANNEL_VECTOR_INL_H
#else
#define DLPRIM_PRIMITIVES_CHANNEL_VECTOR_INL_H
#endif

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "primitives/tensor/bfloat16-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dlprim {
namespace HWY_NAMESPACE {

// Which channels of a vector exist. Memory of the others is not touched.
struct All {};
struct First {
    std::int64_t count;
};

// `count` cache lines. Addresses may lie outside of any tensor. Many at once are faster in a loop
// that paces them: the core has room for some twenty that are under way.
template <class Element>
HWY_INLINE void prefetch(const Element* first, std::int64_t distance, std::int64_t count) {
    if constexpr (HWY_TARGET <= HWY_AVX2) {
        for (std::int64_t i = 0; i < count; ++i) hwy::Prefetch(first + i * distance);
    }
}

// A few, unrolled.
template <std::int64_t kCount, class Element>
HWY_INLINE void prefetch(const Element* first, std::int64_t distance) {
    prefetch(first, distance, kCount);
}

#if HWY_TARGET == HWY_SCALAR

template <class Element>
struct ChannelVector {
    using Memory = Element;
    using Narrow = ChannelVector;
    static constexpr std::int64_t kChannels = 1;
    float value;

    static ChannelVector zero() { return {0}; }
    static ChannelVector load_floats(const float* src) { return {*src}; }
    template <class Part>
    static ChannelVector load_floats(const float* src, Part) {
        return {*src};
    }
    template <class Part>
    static ChannelVector load(const Element* src, Part) {
        if constexpr (std::is_same_v<Element, float>) return {*src};
        return {std::bit_cast<float>(static_cast<std::uint32_t>(*src) << 16)};
    }
    template <class Part>
    void store(Element* dst, Part) const {
        if constexpr (std::is_same_v<Element, float>) {
            *dst = value;
        } else {
            *dst = rounded_to_half(value);
        }
    }
    void store_floats(float* dst) const { *dst = value; }
    void multiply_add(const ChannelVector& x, const ChannelVector& y) {
        value += x.value * y.value;
    }
    void add(const ChannelVector& x) { value += x.value; }
    void relu() { value = value < 0 ? 0 : value; }
};

#else

template <class D>
HWY_INLINE Vector<D> load_part(D d, const hn::TFromD<D>* src, All) {
    return hn::LoadU(d, src);
}

template <class D>
HWY_INLINE void store_part(D d, Vector<D> values, hn::TFromD<D>* dst, All) {
    hn::StoreU(values, d, dst);
}

// Whether masked accesses leave the memory of lanes that are off alone.
template <class D>
inline constexpr bool masks_guard =
    HWY_TARGET <= HWY_AVX3 || (HWY_TARGET <= HWY_AVX2 && sizeof(hn::TFromD<D>) == kWordBytes);

// hn::FirstN would need BMI2 in Highway 1.0.3.
template <class D>
HWY_INLINE hn::Mask<D> lanes_before(D d, std::int64_t count) {
    return hn::Lt(hn::Iota(d, 0), hn::Set(d, static_cast<hn::TFromD<D>>(count)));
}

template <class D>
HWY_INLINE Vector<D> load_part(D d, const hn::TFromD<D>* src, First part) {
    if constexpr (masks_guard<D>) {
        return hn::MaskedLoad(lanes_before(d, part.count), d, src);
    } else {
        const auto count = static_cast<std::size_t>(part.count);
        HWY_ALIGN hn::TFromD<D> copy[hn::MaxLanes(D())] = {};
        std::memcpy(copy, src, count * sizeof(*src));
        return hn::Load(d, copy);
    }
}

template <class D>
HWY_INLINE void store_part(D d, Vector<D> values, hn::TFromD<D>* dst, First part) {
    if constexpr (masks_guard<D>) {
        hn::BlendedStore(values, lanes_before(d, part.count), d, dst);
    } else {
        const auto count = static_cast<std::size_t>(part.count);
        HWY_ALIGN hn::TFromD<D> copy[hn::MaxLanes(D())];
        hn::Store(values, d, copy);
        std::memcpy(dst, copy, count * sizeof(*dst));
    }
}

using Floats = hn::ScalableTag<float>;
using Words = hn::ScalableTag<std::uint32_t>;
using Halves = hn::ScalableTag<std::uint16_t>;

// Keeps NaN and the sign of zero.
HWY_INLINE Vector<Floats> relu_of(Vector<Floats> values) {
    return hn::IfThenZeroElse(hn::Lt(values, hn::Zero(Floats())), values);
}

template <class Element>
struct ChannelVector;

template <>
struct ChannelVector<float> {
    using Memory = float;
    using Narrow = ChannelVector;  // for what is left of a block
    static constexpr std::int64_t kChannels = lanes<Floats>;
    Vector<Floats> values;

    static HWY_INLINE ChannelVector zero() { return {hn::Zero(Floats())}; }
    static HWY_INLINE ChannelVector load_floats(const float* src) { return load(src, All()); }
    template <class Part>
    static HWY_INLINE ChannelVector load_floats(const float* src, Part part) {
        return load(src, part);
    }
    template <class Part>
    static HWY_INLINE ChannelVector load(const float* src, Part part) {
        return {load_part(Floats(), src, part)};
    }
    template <class Part>
    HWY_INLINE void store(float* dst, Part part) const {
        store_part(Floats(), values, dst, part);
    }
    HWY_INLINE void store_floats(float* dst) const { hn::StoreU(values, Floats(), dst); }
    HWY_INLINE void multiply_add(const ChannelVector& x, const ChannelVector& y) {
        values = hn::MulAdd(x.values, y.values, values);
    }
    HWY_INLINE void add(const ChannelVector& x) { values = hn::Add(values, x.values); }
    HWY_INLINE void relu() { values = relu_of(values); }
};

// Half as many channels, in one register.
struct NarrowVector {
    using Memory = std::uint16_t;
    using Narrow = NarrowVector;
    using NarrowHalves = hn::Rebind<std::uint16_t, Floats>;
    static constexpr std::int64_t kChannels = lanes<Floats>;
    Vector<Floats> values;

    static HWY_INLINE NarrowVector zero() { return {hn::Zero(Floats())}; }
    static HWY_INLINE NarrowVector load_floats(const float* src) {
        return {hn::LoadU(Floats(), src)};
    }
    template <class Part>
    static HWY_INLINE NarrowVector load_floats(const float* src, Part part) {
        return {load_part(Floats(), src, part)};
    }
    template <class Part>
    static HWY_INLINE NarrowVector load(const std::uint16_t* src, Part part) {
        const auto words = hn::PromoteTo(Words(), load_part(NarrowHalves(), src, part));
        return {hn::BitCast(Floats(), hn::ShiftLeft<16>(words))};
    }
    template <class Part>
    HWY_INLINE void store(std::uint16_t* dst, Part part) const {
        const auto words = hn::ShiftRight<16>(rounded(Words(), values));
        store_part(NarrowHalves(), hn::TruncateTo(NarrowHalves(), words), dst, part);
    }
    HWY_INLINE void store_floats(float* dst) const { hn::StoreU(values, Floats(), dst); }
    HWY_INLINE void multiply_add(const NarrowVector& x, const NarrowVector& y) {
        values = hn::MulAdd(x.values, y.values, values);
    }
    HWY_INLINE void add(const NarrowVector& x) { values = hn::Add(values, x.values); }
    HWY_INLINE void relu() { values = relu_of(values); }
};

template <>
struct ChannelVector<std::uint16_t> {
    using Memory = std::uint16_t;
    // Blocks are whole registers of the other widths.
    using Narrow =
        std::conditional_t<(HWY_TARGET <= HWY_AVX3), NarrowVector, ChannelVector<std::uint16_t>>;
    static constexpr std::int64_t kChannels = 2 * lanes<Floats>;
    Vector<Floats> even;
    Vector<Floats> odd;

    static HWY_INLINE ChannelVector zero() { return {hn::Zero(Floats()), hn::Zero(Floats())}; }
    static HWY_INLINE ChannelVector load_floats(const float* src) {
        return from_neighbours(hn::LoadU(Floats(), src), hn::LoadU(Floats(), src + lanes<Floats>));
    }
    static HWY_INLINE ChannelVector load_floats(const float* src, All) { return load_floats(src); }
    static HWY_INLINE ChannelVector load_floats(const float* src, First part) {
        const std::int64_t low = std::min(part.count, lanes<Floats>);
        return from_neighbours(load_part(Floats(), src, First{low}),
                               load_part(Floats(), src + low, First{part.count - low}));
    }
    static HWY_INLINE ChannelVector of(Vector<Halves> halves) {
        const auto pairs = hn::BitCast(Words(), halves);
        return {hn::BitCast(Floats(), hn::ShiftLeft<16>(pairs)),
                hn::BitCast(Floats(), hn::And(pairs, hn::Set(Words(), 0xffff0000)))};
    }
    template <class Part>
    static HWY_INLINE ChannelVector load(const std::uint16_t* src, Part part) {
        return of(load_part(Halves(), src, part));
    }
    template <class Part>
    HWY_INLINE void store(std::uint16_t* dst, Part part) const {
        const auto pairs = hn::Or(hn::ShiftRight<16>(rounded(Words(), even)),
                                  hn::And(rounded(Words(), odd), hn::Set(Words(), 0xffff0000)));
        store_part(Halves(), hn::BitCast(Halves(), pairs), dst, part);
    }
    HWY_INLINE void store_floats(float* dst) const {
        hn::StoreInterleaved2(even, odd, Floats(), dst);
    }
    HWY_INLINE void multiply_add(const ChannelVector& x, const ChannelVector& y) {
        even = hn::MulAdd(x.even, y.even, even);
        odd = hn::MulAdd(x.odd, y.odd, odd);
    }
    HWY_INLINE void add(const ChannelVector& x) {
        even = hn::Add(even, x.even);
        odd = hn::Add(odd, x.odd);
    }
    HWY_INLINE void relu() {
        even = relu_of(even);
        odd = relu_of(odd);
    }

private:
    static HWY_INLINE ChannelVector from_neighbours(Vector<Floats> low, Vector<Floats> high) {
        return {hn::ConcatEven(Floats(), high, low), hn::ConcatOdd(Floats(), high, low)};
    }
};

#endif

}  // namespace HWY_NAMESPACE
}  // namespace dlprim
HWY_AFTER_NAMESPACE();

#endif
