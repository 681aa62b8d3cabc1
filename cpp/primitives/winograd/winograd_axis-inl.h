// The one-dimensional transforms of Winograd convolution in registers, for the files that are
// compiled once per vector width. A tile of M results of a filter of 3 taps needs M + 2 inputs and
// as many products, one per interpolation point ("slot"). Tiles of 4 use the points 0, +-a, +-b,
// infinity with a = sqrt(1/2), b = sqrt(2): the products of their squares are small, so float32
// loses little. Tiles of 3 leave out -b and so share the transformed filter. Tiles of 2 use 0, 1,
// -1, infinity and a filter of their own. All normalisation is in the filter's transform.
// Derivation: docs/winograd.md; tests/winograd_exact.py checks every constant in exact arithmetic.
//
// A transform comes in passes that give one or two values each (kGives), so that a two-dimensional
// one can hold a row of results in registers.
#if defined(DLPRIM_PRIMITIVES_WINOGRAD_AXIS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef DLPRIM_PRIMITIVES_WINOGRAD_AXIS_INL_H
#undef DLPRIM_PRIMITIVES_WINOGRAD_AXIS_INL_H
#else
#define DLPRIM_PRIMITIVES_WINOGRAD_AXIS_INL_H
#endif

#include <hwy/highway.h>

#include "primitives/tensor/float_vector-inl.h"
#include "primitives/winograd/winograd_transform.h"

HWY_BEFORE_NAMESPACE();
namespace dlprim {
namespace HWY_NAMESPACE {

inline constexpr float kA = 0.707106781186547524F;
inline constexpr float kB = 1.41421356237309505F;

HWY_INLINE FloatVector times(float factor, FloatVector x) { return hn::Mul(number(factor), x); }
// x * factor + y
HWY_INLINE FloatVector plus(FloatVector y, float factor, FloatVector x) {
    return hn::MulAdd(number(factor), x, y);
}
HWY_INLINE FloatVector plus(FloatVector x, FloatVector y) { return hn::Add(x, y); }
HWY_INLINE FloatVector minus(FloatVector x, FloatVector y) { return hn::Sub(x, y); }

// The slots, or results, that a pass gives.
struct Given {
    int first;
    int second;
};
inline constexpr int kNone = -1;

// Points a and -a, then b and -b, then 0 and infinity.
struct SixSlots {
    static constexpr int kSlots = slots_of(4);
    static constexpr Given kGives[] = {{1, 2}, {3, 4}, {0, 5}};
};
struct FiveSlots {
    static constexpr int kSlots = slots_of(4);
    static constexpr Given kGives[] = {{1, 2}, {3, kNone}, {0, 5}};
};
// Points 1 and -1, then 0 and infinity.
struct FourSlots {
    static constexpr int kSlots = slots_of(2);
    static constexpr Given kGives[] = {{1, 2}, {0, 3}};
};

struct FourResults {
    static constexpr Given kGives[] = {{0, 2}, {1, 3}};
};
struct ThreeResults {
    static constexpr Given kGives[] = {{0, 2}, {1, kNone}};
};
struct TwoResults {
    static constexpr Given kGives[] = {{0, 1}};
};

// Steps: pixels from a tile to its neighbour, 0 where what is transformed has none.
template <int kOperands, int kPixels>
struct Axis {
    static constexpr int kIn = kOperands;
    static constexpr int kStep = kPixels;
};

// Inputs of a tile to slots.
struct Input4 : SixSlots, Axis<6, 4> {
    template <int kPass>
    static HWY_INLINE void apply(const FloatVector* d, FloatVector& x, FloatVector& y) {
        if constexpr (kPass == 0) {
            const FloatVector even = plus(d[4], -2.0F, d[2]);
            const FloatVector odd = plus(d[3], -2.0F, d[1]);
            x = plus(even, kA, odd);
            y = plus(even, -kA, odd);
        } else if constexpr (kPass == 1) {
            const FloatVector even = plus(d[4], -0.5F, d[2]);
            const FloatVector odd = plus(d[3], -0.5F, d[1]);
            x = plus(even, kB, odd);
            y = plus(even, -kB, odd);
        } else {
            x = plus(plus(d[0], d[4]), -2.5F, d[2]);
            y = plus(plus(d[1], d[5]), -2.5F, d[3]);
        }
    }
};

struct Input3 : FiveSlots, Axis<5, 3> {
    template <int kPass>
    static HWY_INLINE void apply(const FloatVector* d, FloatVector& x, FloatVector& y) {
        if constexpr (kPass == 0) {
            const FloatVector u = plus(d[3], -kB, d[2]);
            const FloatVector w = plus(d[2], -kB, d[1]);
            x = times(kA + kB, plus(u, kA, w));
            y = times(kB - kA, plus(u, -kA, w));
        } else if constexpr (kPass == 1) {
            x = times(2 * kB, plus(d[3], -0.5F, d[1]));
        } else {
            const FloatVector u = plus(d[3], -kB, d[2]);
            const FloatVector w = plus(d[2], -kB, d[1]);
            x = times(kB, plus(u, -0.5F, plus(d[1], -kB, d[0])));
            y = plus(plus(d[4], -kB, d[3]), -0.5F, w);
        }
    }
};

struct Input2 : FourSlots, Axis<4, 2> {
    template <int kPass>
    static HWY_INLINE void apply(const FloatVector* d, FloatVector& x, FloatVector& y) {
        if constexpr (kPass == 0) {
            x = plus(d[2], d[1]);
            y = minus(d[2], d[1]);
        } else {
            x = minus(d[0], d[2]);
            y = minus(d[3], d[1]);
        }
    }
};

// Gradients of a tile's results to slots: the transpose of Result.
struct Gradient4 : SixSlots, Axis<4, 4> {
    template <int kPass>
    static HWY_INLINE void apply(const FloatVector* g, FloatVector& x, FloatVector& y) {
        if constexpr (kPass == 2) {
            x = g[0];
            y = g[3];
        } else {
            constexpr float point = kPass == 0 ? kA : kB;
            constexpr float square = kPass == 0 ? 0.5F : 2.0F;
            const FloatVector even = plus(g[0], square, g[2]);
            const FloatVector odd = plus(g[1], square, g[3]);
            x = plus(even, point, odd);
            y = plus(even, -point, odd);
        }
    }
};

struct Gradient3 : FiveSlots, Axis<3, 3> {
    template <int kPass>
    static HWY_INLINE void apply(const FloatVector* g, FloatVector& x, FloatVector& y) {
        if constexpr (kPass == 0) {
            const FloatVector even = plus(g[0], 0.5F, g[2]);
            x = plus(even, kA, g[1]);
            y = plus(even, -kA, g[1]);
        } else if constexpr (kPass == 1) {
            x = plus(plus(g[0], 2.0F, g[2]), kB, g[1]);
        } else {
            x = g[0];
            y = g[2];
        }
    }
};

struct Gradient2 : FourSlots, Axis<2, 2> {
    template <int kPass>
    static HWY_INLINE void apply(const FloatVector* g, FloatVector& x, FloatVector& y) {
        if constexpr (kPass == 0) {
            x = plus(g[0], g[1]);
            y = minus(g[0], g[1]);
        } else {
            x = g[0];
            y = g[1];
        }
    }
};

// Slots to the results of a tile.
struct Result4 : FourResults, Axis<6, 4> {
    template <int kPass>
    static HWY_INLINE void apply(const FloatVector* m, FloatVector& x, FloatVector& y) {
        if constexpr (kPass == 0) {
            const FloatVector at_a = plus(m[1], m[2]);
            const FloatVector at_b = plus(m[3], m[4]);
            x = plus(plus(m[0], at_a), at_b);
            y = plus(times(0.5F, at_a), 2.0F, at_b);
        } else {
            const FloatVector at_a = minus(m[1], m[2]);
            const FloatVector at_b = minus(m[3], m[4]);
            x = plus(times(kA, at_a), kB, at_b);
            y = plus(plus(m[5], 0.5F * kA, at_a), 2.0F * kB, at_b);
        }
    }
};

struct Result3 : ThreeResults, Axis<6, 3> {
    template <int kPass>
    static HWY_INLINE void apply(const FloatVector* m, FloatVector& x, FloatVector& y) {
        if constexpr (kPass == 0) {
            const FloatVector at_a = plus(m[1], m[2]);
            x = plus(plus(m[0], at_a), m[3]);
            y = plus(plus(m[5], 0.5F, at_a), 2.0F, m[3]);
        } else {
            x = plus(times(kA, minus(m[1], m[2])), kB, m[3]);
        }
    }
};

struct Result2 : TwoResults, Axis<4, 2> {
    template <int kPass>
    static HWY_INLINE void apply(const FloatVector* m, FloatVector& x, FloatVector& y) {
        x = plus(plus(m[0], m[1]), m[2]);
        y = plus(minus(m[1], m[2]), m[3]);
    }
};

// A filter to slots, for tiles of 4 and 3, or of 2.
struct Filter4 : SixSlots, Axis<3, 0> {
    template <int kPass>
    static HWY_INLINE void apply(const FloatVector* g, FloatVector& x, FloatVector& y) {
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

struct Filter2 : FourSlots, Axis<3, 0> {
    template <int kPass>
    static HWY_INLINE void apply(const FloatVector* g, FloatVector& x, FloatVector& y) {
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

// Slots to the gradient of the filter: the transpose of Filter.
struct FilterGradient4 : ThreeResults, Axis<6, 0> {
    template <int kPass>
    static HWY_INLINE void apply(const FloatVector* m, FloatVector& x, FloatVector& y) {
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

struct FilterGradient2 : ThreeResults, Axis<4, 0> {
    template <int kPass>
    static HWY_INLINE void apply(const FloatVector* m, FloatVector& x, FloatVector& y) {
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
