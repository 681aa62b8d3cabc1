// One register of float32 from memory of float32 or bfloat16 and back, whole or in part, for the
// files that are compiled once per vector width.
#if defined(DLPRIM_PRIMITIVES_FLOAT_VECTOR_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef DLPRIM_PRIMITIVES_FLOAT_VECTOR_INL_H
#undef DLPRIM_PRIMITIVES_FLOAT_VECTOR_INL_H
#else
#define DLPRIM_PRIMITIVES_FLOAT_VECTOR_INL_H
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "primitives/tensor/bfloat16-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dlprim {
namespace HWY_NAMESPACE {

using Floats = hn::ScalableTag<float>;
using Words = hn::ScalableTag<std::uint32_t>;
using Halves = hn::ScalableTag<std::uint16_t>;
using FloatHalves = hn::Rebind<std::uint16_t, Floats>;  // as many as there are Floats
using FloatVector = Vector<Floats>;

inline constexpr std::int64_t kFloatLanes = lanes<Floats>;

// Which lanes of a vector exist. Memory of the others is not touched.
struct All {};
struct First {
    std::int64_t count;
};

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
HWY_INLINE Vector<D> load_part(D d, const hn::TFromD<D>* src, All) {
    return hn::LoadU(d, src);
}

// Lanes that do not exist are zero.
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
HWY_INLINE void store_part(D d, Vector<D> values, hn::TFromD<D>* dst, All) {
    hn::StoreU(values, d, dst);
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

HWY_INLINE FloatVector number(float value) { return hn::Set(Floats(), value); }

HWY_INLINE FloatVector from_lower_halves(Vector<Words> words) {
    return hn::BitCast(Floats(), hn::ShiftLeft<16>(words));
}
HWY_INLINE FloatVector from_upper_halves(Vector<Words> words) {
    return hn::BitCast(Floats(), hn::And(words, hn::Set(Words(), 0xffff0000)));
}

template <class Part>
HWY_INLINE FloatVector load_values(const float* src, Part part) {
    return load_part(Floats(), src, part);
}
template <class Part>
HWY_INLINE FloatVector load_values(const std::uint16_t* src, Part part) {
    return from_lower_halves(hn::PromoteTo(Words(), load_part(FloatHalves(), src, part)));
}

template <class Part>
HWY_INLINE void store_values(FloatVector values, float* dst, Part part) {
    store_part(Floats(), values, dst, part);
}
template <class Part>
HWY_INLINE void store_upper_halves(Vector<Words> words, std::uint16_t* dst, Part part) {
    const hn::RebindToSigned<Words> integers;
    const auto upper = hn::BitCast(integers, hn::ShiftRight<16>(words));
    store_part(FloatHalves(), hn::DemoteTo(FloatHalves(), upper), dst, part);
}
template <class Part>
HWY_INLINE void store_values(FloatVector values, std::uint16_t* dst, Part part) {
    store_upper_halves(rounded(Words(), values), dst, part);
}

// Keeps NaN and the sign of zero.
HWY_INLINE FloatVector relu_of(FloatVector values) {
    return hn::IfThenZeroElse(hn::Lt(values, hn::Zero(Floats())), values);
}

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

// body(i) for i from 0 to kCount - 1, each a constant: what it indexes can stay in registers, if
// the body is a lambda that is always inlined.
template <class Body, int... kIndex>
HWY_INLINE void unrolled(std::integer_sequence<int, kIndex...>, const Body& body) {
    (body(std::integral_constant<int, kIndex>()), ...);
}
template <int kCount, class Body>
HWY_INLINE void unrolled(const Body& body) {
    unrolled(std::make_integer_sequence<int, kCount>(), body);
}

}  // namespace HWY_NAMESPACE
}  // namespace dlprim
HWY_AFTER_NAMESPACE();

#endif
