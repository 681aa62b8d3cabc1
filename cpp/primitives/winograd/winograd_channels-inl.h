// How the transforms of Winograd convolution read and write channels: float32, bfloat16, or one of
// each pair of bfloat16; and what they prefetch.
#if defined(DLPRIM_PRIMITIVES_WINOGRAD_CHANNELS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef DLPRIM_PRIMITIVES_WINOGRAD_CHANNELS_INL_H
#undef DLPRIM_PRIMITIVES_WINOGRAD_CHANNELS_INL_H
#else
#define DLPRIM_PRIMITIVES_WINOGRAD_CHANNELS_INL_H
#endif

#include <cstdint>

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "primitives/tensor/float_vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dlprim {
namespace HWY_NAMESPACE {

inline constexpr std::uintptr_t kLineBytes = 64;

// Lines of the pixels [begin, end) of `rows` rows, which the neighbour of a tile will use: hardware
// foresees no jumps from pixel to pixel. `first` points at a pixel's elements for one vector; of a
// line only its first vector fetches. What lies beyond a tensor is not touched.
template <class Type>
HWY_INLINE void fetch_pixels(const Type* first, std::int64_t row, std::int64_t pixel, int rows,
                             int begin, int end) {
    if (reinterpret_cast<std::uintptr_t>(first) % kLineBytes >= kFloatLanes * sizeof(Type)) return;
    for (int i = 0; i < rows; ++i) {
        for (int j = begin; j < end; ++j) hwy::Prefetch(first + i * row + j * pixel);
    }
}

// How a channel is stored; `Type` is what pointers count in.
template <class Memory>
struct InMemory {
    using Type = Memory;
    template <class Part>
    static HWY_INLINE FloatVector load(const Type* src, Part part) {
        return load_values(src, part);
    }
    template <class Part>
    static HWY_INLINE void store(FloatVector values, Type* dst, Part part) {
        store_values(values, dst, part);
    }
};

// Of bfloat16 pairs the first or the second.
struct EvenOfPair {
    using Type = std::uint32_t;
    template <class Part>
    static HWY_INLINE FloatVector load(const Type* src, Part part) {
        return from_lower_halves(load_part(Words(), src, part));
    }
};

struct OddOfPair {
    using Type = std::uint32_t;
    template <class Part>
    static HWY_INLINE FloatVector load(const Type* src, Part part) {
        return from_upper_halves(load_part(Words(), src, part));
    }
};

}  // namespace HWY_NAMESPACE
}  // namespace dlprim
HWY_AFTER_NAMESPACE();

#endif
