// Sigmoid and tanh of vectors, for the gates of recurrent cells. At most 4 ULP, as the activations
// of the kernel (jit/activation_assembler.cpp), whose way of computing e^r - 1 this is.
#if defined(DLPRIM_PRIMITIVES_RNN_MATH_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef DLPRIM_PRIMITIVES_RNN_MATH_INL_H
#undef DLPRIM_PRIMITIVES_RNN_MATH_INL_H
#else
#define DLPRIM_PRIMITIVES_RNN_MATH_INL_H
#endif

#include <hwy/highway.h>

#include "primitives/tensor/float_vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dlprim {
namespace HWY_NAMESPACE {

// 2^n and e^r - 1 with x = n ln 2 + r, for -126 ln 2 < x < 127 ln 2.
struct Exponential {
    FloatVector scale;
    FloatVector less_one;
};

HWY_INLINE Exponential exponential(FloatVector x) {
    // Added to a number, it leaves the nearest integer, plus the bias of an exponent field, in the
    // last bits of the sum.
    const FloatVector rounder = number(0x1.8p+23F + 127);
    const FloatVector integer = hn::MulAdd(x, number(0x1.715476p+0F), rounder);
    const FloatVector n = hn::Sub(integer, rounder);
    // ln 2 in two words. The first has 16 bits: its product with n is exact.
    FloatVector r = hn::NegMulAdd(n, number(0x1.62e4p-1F), x);
    r = hn::NegMulAdd(n, number(0x1.7f7d1cp-20F), r);
    const auto bits = hn::ShiftLeft<23>(hn::BitCast(Words(), integer));
    FloatVector sum = hn::MulAdd(r, number(0x1.6b80c8p-10F), number(0x1.122cb8p-7F));
    sum = hn::MulAdd(sum, r, number(0x1.55571p-5F));
    sum = hn::MulAdd(sum, r, number(0x1.5554aap-3F));
    sum = hn::MulAdd(sum, r, number(0x1.fffffep-2F));
    return {hn::BitCast(Floats(), bits), hn::MulAdd(hn::Mul(sum, r), r, r)};
}

// 1 / x for normal x whose reciprocal is normal, within 2 ULP, and exactly 1 for 1, or a saturated
// gate would have a slope: a division takes three times as long.
HWY_INLINE FloatVector reciprocal(FloatVector x) {
    const FloatVector one = number(1);
    FloatVector r = hn::ApproximateReciprocal(x);  // 14 bits of AVX-512, else 12
    r = hn::MulAdd(r, hn::NegMulAdd(x, r, one), r);
    if constexpr (HWY_TARGET > HWY_AVX3) r = hn::MulAdd(r, hn::NegMulAdd(x, r, one), r);
    return r;
}

// The smaller of both; NaN where x is NaN: the instruction returns its last operand then.
HWY_INLINE FloatVector at_most(float limit, FloatVector x) {
    const FloatVector most = number(limit);
    if constexpr (HWY_TARGET == HWY_SCALAR) return hn::IfThenElse(hn::Gt(x, most), most, x);
    return hn::Min(most, x);
}

// 1 / (1 + e^-x), and 0 below -87, where the reciprocal soon is no normal number.
HWY_INLINE FloatVector sigmoid(FloatVector x) {
    const FloatVector bounded = at_most(87, hn::Neg(at_most(30, x)));
    const Exponential it = exponential(bounded);
    const FloatVector one = number(1);
    const FloatVector ratio = reciprocal(hn::Add(hn::MulAdd(it.scale, it.less_one, it.scale), one));
    return hn::IfThenZeroElse(hn::Lt(x, number(-87)), ratio);
}

// f / (f + 2) with f = e^|2x| - 1, and the sign of x.
HWY_INLINE FloatVector tanh(FloatVector x) {
    const FloatVector bounded = at_most(20, hn::Abs(hn::Add(x, x)));
    const Exponential it = exponential(bounded);
    const FloatVector f = hn::MulAdd(it.scale, it.less_one, hn::Sub(it.scale, number(1)));
    return hn::CopySign(hn::Mul(f, reciprocal(hn::Add(f, number(2)))), x);
}

}  // namespace HWY_NAMESPACE
}  // namespace dlprim
HWY_AFTER_NAMESPACE();

#endif
