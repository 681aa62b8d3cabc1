// The transforms of a 3-tap filter and of its gradient, as winograd_axis-inl.h has those of pixels.
// The normalisation of all transforms is here.
#if defined(DLPRIM_PRIMITIVES_WINOGRAD_FILTER_AXIS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef DLPRIM_PRIMITIVES_WINOGRAD_FILTER_AXIS_INL_H
#undef DLPRIM_PRIMITIVES_WINOGRAD_FILTER_AXIS_INL_H
#else
#define DLPRIM_PRIMITIVES_WINOGRAD_FILTER_AXIS_INL_H
#endif

#include <hwy/highway.h>

#include "primitives/winograd/winograd_axis-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dlprim {
namespace HWY_NAMESPACE {

// A filter to slots, for tiles of 4 and 3, or of 2.
template <int kTile>
struct FilterAxis;

template <>
struct FilterAxis<4> : SixSlots {
    static constexpr int kIn = 3;
    static constexpr int kStep = 0;
    template <int kPass>
    static HWY_INLINE void expand(const FloatVector* g, FloatVector& x, FloatVector& y) {
        if constexpr (kPass == 2) {
            x = g[0];
            y = g[2];
        } else {
            constexpr float point = kPass == 0 ? kA : kB;
            constexpr float square = kPass == 0 ? 0.5F : 2.0F;
            constexpr float scale = kPass == 0 ? -2.0F / 3 : 1.0F / 6;
            const FloatVector even = times(scale, plus(g[0], square, g[2]));
            x = plus(even, scale * point, g[1]);
            y = plus(even, -scale * point, g[1]);
        }
    }
};

template <>
struct FilterAxis<2> : FourSlots {
    static constexpr int kIn = 3;
    static constexpr int kStep = 0;
    template <int kPass>
    static HWY_INLINE void expand(const FloatVector* g, FloatVector& x, FloatVector& y) {
        if constexpr (kPass == 0) {
            const FloatVector even = times(0.5F, plus(g[0], g[2]));
            x = plus(even, 0.5F, g[1]);
            y = plus(even, -0.5F, g[1]);
        } else {
            x = g[0];
            y = g[2];
        }
    }
};

// Slots to the gradient of the filter: the transpose of FilterAxis.
template <int kTile>
struct FilterGradientAxis;

template <>
struct FilterGradientAxis<4> : SixSlots {
    static constexpr int kOut = 3;
    static constexpr int kStep = 0;
    static constexpr int kResultPasses = 2;
    static constexpr int first_result(int pass) { return pass; }
    static constexpr int second_result(int pass) { return pass == 0 ? 2 : kNoSlot; }
    template <int kPass>
    static HWY_INLINE void reduce(const FloatVector* m, FloatVector& x, FloatVector& y) {
        constexpr float scale_a = -2.0F / 3;
        constexpr float scale_b = 1.0F / 6;
        if constexpr (kPass == 0) {
            const FloatVector at_a = times(scale_a, plus(m[1], m[2]));
            const FloatVector at_b = times(scale_b, plus(m[3], m[4]));
            x = plus(plus(m[0], at_a), at_b);
            y = plus(plus(m[5], 0.5F, at_a), 2.0F, at_b);
        } else {
            x = plus(times(scale_a * kA, minus(m[1], m[2])), scale_b * kB, minus(m[3], m[4]));
        }
    }
};

template <>
struct FilterGradientAxis<2> : FourSlots {
    static constexpr int kOut = 3;
    static constexpr int kStep = 0;
    static constexpr int kResultPasses = 2;
    static constexpr int first_result(int pass) { return pass; }
    static constexpr int second_result(int pass) { return pass == 0 ? 2 : kNoSlot; }
    template <int kPass>
    static HWY_INLINE void reduce(const FloatVector* m, FloatVector& x, FloatVector& y) {
        if constexpr (kPass == 0) {
            const FloatVector even = times(0.5F, plus(m[1], m[2]));
            x = plus(m[0], even);
            y = plus(m[3], even);
        } else {
            x = times(0.5F, minus(m[1], m[2]));
        }
    }
};

}  // namespace HWY_NAMESPACE
}  // namespace dlprim
HWY_AFTER_NAMESPACE();

#endif
