// Sigmoid and tanh of vectors, and vectors of float32 between registers and memory of either type,
// for the gates of recurrent cells. At most 4 ULP, as the activations of the kernel
// (brgemm/activation_assembler.cpp), whose way of computing e^r - 1 this is.
#if defined(DLPRIM_PRIMITIVES_RNN_MATH_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef DLPRIM_PRIMITIVES_RNN_MATH_INL_H
#undef DLPRIM_PRIMITIVES_RNN_MATH_INL_H
#else
#define DLPRIM_PRIMITIVES_RNN_MATH_INL_H
#endif

#include <algorithm>
#include <cstdint>

#include <hwy/highway.h>

#include "primitives/channel_vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dlprim {
namespace HWY_NAMESPACE {

using FloatLanes = hn::ScalableTag<float>;
using WordLanes = hn::ScalableTag<std::uint32_t>;
using HalfLanes = hn::Rebind<std::uint16_t, FloatLanes>;
using FloatVector = hn::Vec<FloatLanes>;

inline constexpr std::int64_t kFloatLanes = static_cast<std::int64_t>(hn::MaxLanes(FloatLanes()));

HWY_INLINE FloatVector number(float value) { return hn::Set(FloatLanes(), value); }

#if HWY_TARGET == HWY_SCALAR
HWY_INLINE bool is_there(All) { return true; }
HWY_INLINE bool is_there(First part) { return part.count > 0; }

template <class D, class Part>
HWY_INLINE hn::Vec<D> load_part(D d, const hn::TFromD<D>* src, Part part) {
    return is_there(part) ? hn::Load(d, src) : hn::Zero(d);
}
template <class D, class Part>
HWY_INLINE void store_part(D d, hn::Vec<D> values, hn::TFromD<D>* dst, Part part) {
    if (is_there(part)) hn::Store(values, d, dst);
}
#endif

template <class Part>
HWY_INLINE FloatVector load_values(const float* src, Part part) {
    return load_part(FloatLanes(), src, part);
}

template <class Part>
HWY_INLINE FloatVector load_values(const std::uint16_t* src, Part part) {
    const auto words = hn::PromoteTo(WordLanes(), load_part(HalfLanes(), src, part));
    return hn::BitCast(FloatLanes(), hn::ShiftLeft<16>(words));
}

template <class Part>
HWY_INLINE void store_values(FloatVector values, float* dst, Part part) {
    store_part(FloatLanes(), values, dst, part);
}

// Rounds as bfloat16-inl.h does.
template <class Part>
HWY_INLINE void store_values(FloatVector values, std::uint16_t* dst, Part part) {
    const WordLanes words;
    const auto bits = hn::BitCast(words, values);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(words, 1));
    const auto nearest = hn::Add(hn::Add(bits, hn::Set(words, 0x7fff)), odd);
    const auto is_nan = hn::RebindMask(words, hn::IsNaN(values));
    const auto rounded = hn::IfThenElse(is_nan, hn::Or(bits, hn::Set(words, 0x00400000)), nearest);
    const auto upper = hn::BitCast(hn::ScalableTag<std::int32_t>(), hn::ShiftRight<16>(rounded));
    store_part(HalfLanes(), hn::DemoteTo(HalfLanes(), upper), dst, part);
}

// Values that are computed step by step side by side. A function alone is a chain of twenty
// operations, of which too few overlap: eight at once take 12 cycles each instead of 15.
template <int kCount>
struct Several {
    FloatVector at[kCount];
};

// 2^n and e^r - 1 with x = n ln 2 + r, for -126 ln 2 < x < 127 ln 2.
template <int kCount>
struct Exponentials {
    Several<kCount> scale;
    Several<kCount> less_one;
};

template <int kCount>
HWY_INLINE Exponentials<kCount> exponentials(const Several<kCount>& x) {
    // Added to a number, it leaves the nearest integer, plus the bias of an exponent field, in the
    // last bits of the sum.
    const FloatVector rounder = number(0x1.8p+23F + 127);
    Several<kCount> integer;
    Several<kCount> r;
    Several<kCount> sum;
    for (int i = 0; i < kCount; ++i) {
        integer.at[i] = hn::MulAdd(x.at[i], number(0x1.715476p+0F), rounder);
    }
    // ln 2 in two words. The first has 16 bits: its product with n is exact.
    for (int i = 0; i < kCount; ++i) {
        const FloatVector n = hn::Sub(integer.at[i], rounder);
        r.at[i] = hn::NegMulAdd(n, number(0x1.62e4p-1F), x.at[i]);
    }
    for (int i = 0; i < kCount; ++i) {
        const FloatVector n = hn::Sub(integer.at[i], rounder);
        r.at[i] = hn::NegMulAdd(n, number(0x1.7f7d1cp-20F), r.at[i]);
        sum.at[i] = number(0x1.6b80c8p-10F);
    }
    for (const float coefficient :
         {0x1.122cb8p-7F, 0x1.55571p-5F, 0x1.5554aap-3F, 0x1.fffffep-2F}) {
        for (int i = 0; i < kCount; ++i) {
            sum.at[i] = hn::MulAdd(sum.at[i], r.at[i], number(coefficient));
        }
    }
    Exponentials<kCount> results;
    for (int i = 0; i < kCount; ++i) {
        results.less_one.at[i] = hn::MulAdd(hn::Mul(sum.at[i], r.at[i]), r.at[i], r.at[i]);
    }
    for (int i = 0; i < kCount; ++i) {
        const auto bits = hn::ShiftLeft<23>(hn::BitCast(WordLanes(), integer.at[i]));
        results.scale.at[i] = hn::BitCast(FloatLanes(), bits);
    }
    return results;
}

// 1 / x for normal x whose reciprocal is normal, within 2 ULP, and exactly 1 for 1, or a saturated
// gate would have a slope: a division takes three times as long.
template <int kCount>
HWY_INLINE Several<kCount> reciprocals(const Several<kCount>& x) {
    constexpr int kSteps = HWY_TARGET > HWY_AVX3 ? 2 : 1;  // 14 bits of AVX-512, else 12
    Several<kCount> r;
    for (int i = 0; i < kCount; ++i) r.at[i] = hn::ApproximateReciprocal(x.at[i]);
    for (int step = 0; step < kSteps; ++step) {
        for (int i = 0; i < kCount; ++i) {
            const FloatVector error = hn::NegMulAdd(x.at[i], r.at[i], number(1));
            r.at[i] = hn::MulAdd(r.at[i], error, r.at[i]);
        }
    }
    return r;
}

// The smaller of both; NaN where x is NaN: the instruction returns its last operand then.
HWY_INLINE FloatVector at_most(float limit, FloatVector x) {
    const FloatVector most = number(limit);
    if constexpr (HWY_TARGET == HWY_SCALAR) return hn::IfThenElse(hn::Gt(x, most), most, x);
    return hn::Min(most, x);
}

// In place: tanh of x[i] where i modulo kPeriod is kTanh, sigmoid of the others.
//   sigmoid(x) = 1 / (1 + e^-x), and 0 below -87, where the reciprocal soon is no normal number;
//   tanh(x) = f / (f + 2) with f = e^|2x| - 1, and the sign of x.
template <int kPeriod, int kTanh, int kCount>
HWY_INLINE void activate(Several<kCount>& x) {
    const auto is_tanh = [](int i) { return i % kPeriod == kTanh; };
    Several<kCount> bounded;
    for (int i = 0; i < kCount; ++i) {
        bounded.at[i] = is_tanh(i) ? at_most(20, hn::Abs(hn::Add(x.at[i], x.at[i])))
                                   : at_most(87, hn::Neg(at_most(30, x.at[i])));
    }
    const Exponentials<kCount> power = exponentials(bounded);
    Several<kCount> f;
    Several<kCount> denominator;
    for (int i = 0; i < kCount; ++i) {
        const FloatVector scale = power.scale.at[i];
        const FloatVector rest = is_tanh(i) ? hn::Sub(scale, number(1)) : scale;
        f.at[i] = hn::MulAdd(scale, power.less_one.at[i], rest);
        denominator.at[i] = hn::Add(f.at[i], number(is_tanh(i) ? 2 : 1));
    }
    const Several<kCount> ratio = reciprocals(denominator);
    for (int i = 0; i < kCount; ++i) {
        x.at[i] = is_tanh(i) ? hn::CopySign(hn::Mul(f.at[i], ratio.at[i]), x.at[i])
                             : hn::IfThenZeroElse(hn::Lt(x.at[i], number(-87)), ratio.at[i]);
    }
}

template <int kCount>
HWY_INLINE void tanh_of_all(Several<kCount>& x) {
    activate<1, 0>(x);
}

}  // namespace HWY_NAMESPACE
}  // namespace dlprim
HWY_AFTER_NAMESPACE();

#endif
