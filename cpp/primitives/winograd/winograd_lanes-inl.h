// Vectors of float32 from float32 or bfloat16 memory and back, whole or in part, for the
// transforms of Winograd convolution; on every target, the one without vectors included.
#if defined(DLPRIM_PRIMITIVES_WINOGRAD_LANES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef DLPRIM_PRIMITIVES_WINOGRAD_LANES_INL_H
#undef DLPRIM_PRIMITIVES_WINOGRAD_LANES_INL_H
#else
#define DLPRIM_PRIMITIVES_WINOGRAD_LANES_INL_H
#endif

#include <cstdint>

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "primitives/tensor/channel_vector-inl.h"
#include "primitives/winograd/winograd_axis-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dlprim {
namespace HWY_NAMESPACE {

using WordTag = wg::Rebind<std::uint32_t, Tag>;
using HalfTag = wg::Rebind<std::uint16_t, Tag>;
inline constexpr std::uintptr_t kLineBytes = 64;
inline constexpr std::int64_t kLanes = static_cast<std::int64_t>(wg::MaxLanes(Tag()));

template <class D, class Part>
HWY_INLINE wg::Vec<D> load_some(D d, const wg::TFromD<D>* src, [[maybe_unused]] Part part) {
#if HWY_TARGET == HWY_SCALAR
    return wg::LoadU(d, src);
#else
    return load_part(d, src, part);
#endif
}

template <class D, class Part>
HWY_INLINE void store_some(D d, wg::Vec<D> values, wg::TFromD<D>* dst, [[maybe_unused]] Part part) {
#if HWY_TARGET == HWY_SCALAR
    wg::StoreU(values, d, dst);
#else
    store_part(d, values, dst, part);
#endif
}

// Lines of the pixels [begin, end) of `rows` rows, which the neighbour of a tile will use: hardware
// foresees no jumps from pixel to pixel. `first` points at a pixel's elements for one vector; of a
// line only its first vector fetches. What lies beyond a tensor is not touched.
template <class Type>
HWY_INLINE void fetch_pixels(const Type* first, std::int64_t row, std::int64_t pixel, int rows,
                             int begin, int end) {
    if (reinterpret_cast<std::uintptr_t>(first) % kLineBytes >= kLanes * sizeof(Type)) return;
    for (int i = 0; i < rows; ++i) {
        for (int j = begin; j < end; ++j) hwy::Prefetch(first + i * row + j * pixel);
    }
}

HWY_INLINE Lanes from_upper_halves(wg::Vec<WordTag> words) {
    return wg::BitCast(Tag(), wg::And(words, wg::Set(WordTag(), 0xffff0000)));
}

HWY_INLINE Lanes from_lower_halves(wg::Vec<WordTag> words) {
    return wg::BitCast(Tag(), wg::ShiftLeft<16>(words));
}

// How a channel is stored; `Type` is what pointers count in.
struct Float {
    using Type = float;
    template <class Part>
    static HWY_INLINE Lanes load(const Type* src, Part part) {
        return load_some(Tag(), src, part);
    }
    template <class Part>
    static HWY_INLINE void store(Lanes values, Type* dst, Part part) {
        store_some(Tag(), values, dst, part);
    }
};

struct Bfloat16 {
    using Type = std::uint16_t;
    template <class Part>
    static HWY_INLINE Lanes load(const Type* src, Part part) {
        return from_lower_halves(wg::PromoteTo(WordTag(), load_some(HalfTag(), src, part)));
    }
    // To nearest, ties to even; a NaN stays one and becomes quiet.
    template <class Part>
    static HWY_INLINE void store(Lanes values, Type* dst, Part part) {
        const wg::Rebind<std::int32_t, Tag> integers;
        const auto bits = wg::BitCast(WordTag(), values);
        const auto odd = wg::And(wg::ShiftRight<16>(bits), wg::Set(WordTag(), 1));
        const auto nearest = wg::Add(wg::Add(bits, wg::Set(WordTag(), 0x7fff)), odd);
        const auto quiet = wg::Or(bits, wg::Set(WordTag(), 0x00400000));
        const auto is_nan = wg::RebindMask(WordTag(), wg::IsNaN(values));
        const auto upper = wg::ShiftRight<16>(wg::IfThenElse(is_nan, quiet, nearest));
        store_some(HalfTag(), wg::DemoteTo(HalfTag(), wg::BitCast(integers, upper)), dst, part);
    }
};

// Of bfloat16 pairs the first or the second.
struct EvenOfPair {
    using Type = std::uint32_t;
    template <class Part>
    static HWY_INLINE Lanes load(const Type* src, Part part) {
        return from_lower_halves(load_some(WordTag(), src, part));
    }
};

struct OddOfPair {
    using Type = std::uint32_t;
    template <class Part>
    static HWY_INLINE Lanes load(const Type* src, Part part) {
        return from_upper_halves(load_some(WordTag(), src, part));
    }
};

}  // namespace HWY_NAMESPACE
}  // namespace dlprim
HWY_AFTER_NAMESPACE();

#endif
