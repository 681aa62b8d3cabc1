// The one-dimensional transforms of Winograd convolution in registers, for the files that are
// compiled once per vector width. A tile of M results of a filter of 3 taps needs M + 2 inputs and
// as many products, one per interpolation point ("slot"). Tiles of 4 use the points 0, +-a, +-b,
// infinity with a = sqrt(1/2), b = sqrt(2): the products of their squares are small, so float32
// loses little. Tiles of 3 leave out -b and so share the transformed filter. Tiles of 2 use 0, 1,
// -1, infinity and a filter of their own. All normalisation is in the filter's transform.
// Derivation: docs/winograd.md; tests/winograd_exact.py checks every constant in exact arithmetic.
//
// kStep: pixels from a tile to its neighbour, 0 where what is transformed has none.
//
// A transform to slots comes in passes that give one or two slots each, so that a two-dimensional
// one can hold a row of results in registers; a transform from slots likewise.
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

inline constexpr int kNoSlot = -1;
inline constexpr float kA = 0.707106781186547524F;
inline constexpr float kB = 1.41421356237309505F;

HWY_INLINE FloatVector times(float factor, FloatVector x) { return hn::Mul(number(factor), x); }
// x * factor + y
HWY_INLINE FloatVector plus(FloatVector y, float factor, FloatVector x) {
    return hn::MulAdd(number(factor), x, y);
}
HWY_INLINE FloatVector plus(FloatVector x, FloatVector y) { return hn::Add(x, y); }
HWY_INLINE FloatVector minus(FloatVector x, FloatVector y) { return hn::Sub(x, y); }

// Slots of the points a and -a in the first pass, b and -b in the second, 0 and infinity in the
// last.
struct SixSlots {
    static constexpr int kSlots = slots_of(4);
    static constexpr int kPasses = 3;
    static constexpr int first(int pass) { return pass == 0 ? 1 : pass == 1 ? 3 : 0; }
    static constexpr int second(int pass) { return pass == 0 ? 2 : pass == 1 ? 4 : 5; }
};

struct FiveSlots : SixSlots {
    static constexpr int second(int pass) { return pass == 1 ? kNoSlot : SixSlots::second(pass); }
};

// Points 1 and -1, then 0 and infinity.
struct FourSlots {
    static constexpr int kSlots = slots_of(2);
    static constexpr int kPasses = 2;
    static constexpr int first(int pass) { return pass == 0 ? 1 : 0; }
    static constexpr int second(int pass) { return pass == 0 ? 2 : 3; }
};

// Inputs of a tile to slots.
template <int kTile>
struct InputAxis;

template <>
struct InputAxis<4> : SixSlots {
    static constexpr int kIn = 6;
    static constexpr int kStep = 4;
    template <int kPass>
    static HWY_INLINE void expand(const FloatVector* d, FloatVector& x, FloatVector& y) {
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

template <>
struct InputAxis<3> : FiveSlots {
    static constexpr int kIn = 5;
    static constexpr int kStep = 3;
    template <int kPass>
    static HWY_INLINE void expand(const FloatVector* d, FloatVector& x, FloatVector& y) {
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

template <>
struct InputAxis<2> : FourSlots {
    static constexpr int kIn = 4;
    static constexpr int kStep = 2;
    template <int kPass>
    static HWY_INLINE void expand(const FloatVector* d, FloatVector& x, FloatVector& y) {
        if constexpr (kPass == 0) {
            x = plus(d[2], d[1]);
            y = minus(d[2], d[1]);
        } else {
            x = minus(d[0], d[2]);
            y = minus(d[3], d[1]);
        }
    }
};

// Gradients of a tile's results to slots: the transpose of ResultAxis.
template <int kTile>
struct GradientAxis;

template <>
struct GradientAxis<4> : SixSlots {
    static constexpr int kIn = 4;
    static constexpr int kStep = 4;
    template <int kPass>
    static HWY_INLINE void expand(const FloatVector* g, FloatVector& x, FloatVector& y) {
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

template <>
struct GradientAxis<3> : FiveSlots {
    static constexpr int kIn = 3;
    static constexpr int kStep = 3;
    template <int kPass>
    static HWY_INLINE void expand(const FloatVector* g, FloatVector& x, FloatVector& y) {
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

template <>
struct GradientAxis<2> : FourSlots {
    static constexpr int kIn = 2;
    static constexpr int kStep = 2;
    template <int kPass>
    static HWY_INLINE void expand(const FloatVector* g, FloatVector& x, FloatVector& y) {
        if constexpr (kPass == 0) {
            x = plus(g[0], g[1]);
            y = minus(g[0], g[1]);
        } else {
            x = g[0];
            y = g[1];
        }
    }
};

// Slots to the results of a tile, in passes that give the results first and second.
template <int kTile>
struct ResultAxis;

template <>
struct ResultAxis<4> : SixSlots {
    static constexpr int kOut = 4;
    static constexpr int kStep = 4;
    static constexpr int kResultPasses = 2;
    static constexpr int first_result(int pass) { return pass; }
    static constexpr int second_result(int pass) { return pass + 2; }
    template <int kPass>
    static HWY_INLINE void reduce(const FloatVector* m, FloatVector& x, FloatVector& y) {
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

template <>
struct ResultAxis<3> : FiveSlots {
    static constexpr int kOut = 3;
    static constexpr int kStep = 3;
    static constexpr int kResultPasses = 2;
    static constexpr int first_result(int pass) { return pass; }
    static constexpr int second_result(int pass) { return pass == 0 ? 2 : kNoSlot; }
    template <int kPass>
    static HWY_INLINE void reduce(const FloatVector* m, FloatVector& x, FloatVector& y) {
        if constexpr (kPass == 0) {
            const FloatVector at_a = plus(m[1], m[2]);
            x = plus(plus(m[0], at_a), m[3]);
            y = plus(plus(m[5], 0.5F, at_a), 2.0F, m[3]);
        } else {
            x = plus(times(kA, minus(m[1], m[2])), kB, m[3]);
        }
    }
};

template <>
struct ResultAxis<2> : FourSlots {
    static constexpr int kOut = 2;
    static constexpr int kStep = 2;
    static constexpr int kResultPasses = 1;
    static constexpr int first_result(int) { return 0; }
    static constexpr int second_result(int) { return 1; }
    template <int kPass>
    static HWY_INLINE void reduce(const FloatVector* m, FloatVector& x, FloatVector& y) {
        x = plus(plus(m[0], m[1]), m[2]);
        y = plus(minus(m[1], m[2]), m[3]);
    }
};

}  // namespace HWY_NAMESPACE
}  // namespace dlprim
HWY_AFTER_NAMESPACE();

#endif
