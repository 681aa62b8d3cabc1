#include "jit/activation_assembler.h"

#include <bit>
#include <cstdint>

namespace dlprim {
namespace {

// A constant and its Low add up to the exact value.
constexpr float kLog2e = 0x1.715476p+0F;
constexpr float kLog2eLow = 0x1.4ae0cp-26F;
constexpr float kLn2 = 0x1.62e43p-1F;
constexpr float kTwoLn2 = 0x1.62e4p+0F;  // 16 bits: its product with an exponent is exact
constexpr float kTwoLn2Low = 0x1.7f7d1cp-19F;
constexpr float kRootHalfPi = 0x1.40d932p+0F;

// Exponentials are computed times 2^64. So they, and the products with them, are normal numbers
// down to 2^-190; the last instruction takes the factor away and rounds once.
constexpr int kScale = 64;
constexpr float kUnscale = 0x1p-64F;

// Added to a number, it leaves the nearest integer in the last bits of the sum: plus the bias of
// an exponent field, which the integer becomes when it is shifted there.
constexpr float kRounder = 0x1.8p+23F + 127;
constexpr float kScaledRounder = kRounder + kScale;
constexpr std::uint8_t kSignificandBits = 23;

// From here on the result is rounded to the limit: 0 on the left, 1 on the right.
constexpr float kSigmoidLeft = -120;
constexpr float kSigmoidRight = 30;
constexpr float kTanhRight = 20;  // of 2x
// The same for t = |x|.
constexpr float kSwishLeft = 120;
constexpr float kGeluLeft = 14.5F;
constexpr float kGeluTanhLeft = 11;

constexpr float kSignBit = std::bit_cast<float>(0x80000000U);
constexpr float kAllButSign = std::bit_cast<float>(0x7FFFFFFFU);

}  // namespace

void ActivationAssembler::activate(Activation activation, int value, int scratch, int count,
                                   DType stored) {
    const Lanes x{value, count}, a{scratch, count};
    spare_ = scratch + count * activation_registers(activation);
    switch (activation) {
        case Activation::none: break;
        case Activation::relu:
            zero(a);
            relu(x, a);
            break;
        case Activation::relu6: relu6(x, a); break;
        case Activation::sigmoid: sigmoid(x, a); break;
        case Activation::hardsigmoid: hardsigmoid(x, a); break;
        case Activation::tanh: tanh(x, a); break;
        case Activation::gelu: stored == DType::bf16 ? gelu_of_bf16(x, a) : gelu(x, a); break;
        case Activation::gelu_tanh: gelu_tanh(x, a); break;
        case Activation::swish: swish(x, a); break;
        case Activation::hardswish: hardswish(x, a); break;
    }
}

void ActivationAssembler::relu6(Lanes x, Lanes scratch) {
    zero(scratch);
    relu(x, scratch);
    set(scratch, 6);
    vminps(x, scratch, x);
}

// relu6(x + 3) / 6. Near -3 the sum is exact.
void ActivationAssembler::hardsigmoid(Lanes x, Lanes scratch) {
    vaddps(x, x, 3);
    relu6(x, scratch);
    vmulps(x, x, 1.0F / 6);
}

// x hardsigmoid(x). The gate may lose NaN, which the product has from x.
void ActivationAssembler::hardswish(Lanes x, Lanes gate) {
    vaddps(gate, x, 3);
    vmaxps(gate, gate, 0);
    vminps(gate, gate, 6);
    vmulps(gate, gate, 1.0F / 6);
    vmulps(x, x, gate);
}

// e / (1 + e) with e = e^x.
void ActivationAssembler::sigmoid(Lanes x, Lanes scratch) {
    const Lanes scale = scratch;
    const Lanes r = scratch.behind(1);
    // min and max return their last operand where one is NaN.
    set(scale, kSigmoidRight);
    vminps(x, scale, x);
    set(scale, kSigmoidLeft);
    vmaxps(x, scale, x);
    set(scale, kScaledRounder);
    vfmadd231ps(scale, x, kLog2e);
    vsubps(r, scale, kScaledRounder);
    vfmsub231ps(r, x, kLog2e);
    vfmadd231ps(r, x, kLog2eLow);
    power_of_two(scale);
    exp2_less_one(x, r);
    vfmadd231ps(scale, scale, x);
    logistic_denominator(r, scale);
    vdivps(x, scale, r);
    vmulps(x, x, kUnscale);
}

// f / (f + 2) with f = e^|2x| - 1, and the sign of x.
void ActivationAssembler::tanh(Lanes x, Lanes scratch) {
    const Lanes r = scratch;
    const Lanes scale = scratch.behind(1);
    const Lanes sum = scratch.behind(2);
    vaddps(r, x, x);
    vandps(r, r, kAllButSign);
    set(scale, kTanhRight);
    vminps(r, scale, r);
    set(scale, kRounder);
    vfmadd231ps(scale, r, kLog2e);
    vsubps(sum, scale, kRounder);
    vfnmadd231ps(r, sum, kLn2);
    power_of_two(scale);
    // e^r - 1 = r + r^2 (...), which for a small r is r itself.
    polynomial(sum, r,
               {0x1.6b80c8p-10F, 0x1.122cb8p-7F, 0x1.55571p-5F, 0x1.5554aap-3F, 0x1.fffffep-2F});
    vmulps(sum, sum, r);
    vfmadd213ps(sum, r, r);
    // f = scale (e^r - 1) + (scale - 1).
    vsubps(r, scale, 1);
    vfmadd231ps(r, scale, sum);
    vaddps(scale, r, 2);
    vdivps(r, r, scale);
    vandps(x, x, kSignBit);
    vorps(x, x, r);
}

// x Phi(x). On the left t Phi(-t) = t e^(-t^2 / 2) (R + t P) / (R (2 + t sqrt(2 pi))), one
// quotient, as divisions take longest. 0 <= t P / R < 0.19 keeps the rounding errors of P small,
// and those of R and t R are in both parts of the quotient.
void ActivationAssembler::gelu(Lanes x, Lanes scratch) {
    // Half the denominator takes the factor of two from the scale.
    constexpr float kHalfScaledRounder = kScaledRounder - 1;
    const Lanes t = scratch;
    const Lanes tail = scratch.behind(1);
    const Lanes n = scratch.behind(2);
    const Lanes r = scratch.behind(3);
    split_sides(x, t, tail, kGeluLeft);
    polynomial(tail, t, {0x1.e13f4p-7F, 0x1.c59366p-4F, 0x1.8423bp-2F, 0x1.2e15bep-1F});
    polynomial(r, t,
               {0x1.2d993p-6F, 0x1.4b5beep-3F, 0x1.651d5ap-1F, 0x1.b134d6p+0F, 0x1.20961ap+1F,
                0x1.4ba5e4p+0F});
    vmulps(n, r, t);
    vmulps(tail, tail, t);
    vfmadd213ps(tail, t, n);
    vfmadd231ps(r, n, kRootHalfPi);
    vdivps(tail, tail, r);
    vmulps(r, t, t);
    set(n, kHalfScaledRounder);
    vfmadd231ps(n, r, -kLog2e / 2);
    vsubps(r, n, kHalfScaledRounder);
    power_of_two(n);
    vmulps(tail, tail, n);
    // t^2 + 2n ln 2: one product is exact and the other is inside the FMA, so the square needs no
    // second word.
    vmulps(n, r, kTwoLn2);
    vfmadd231ps(n, t, t);
    vfmadd231ps(n, r, kTwoLn2Low);
    // e^(-n/2) - 1.
    polynomial(r, n,
               {0x1.68744ep-16F, -0x1.123e78p-12F, 0x1.555b7cp-9F, -0x1.55548ap-6F, 0x1.fffff8p-4F,
                -0.5F});
    vmulps(r, r, n);
    vfmadd231ps(tail, tail, r);
    join_sides(x, tail);
}

// The same with one quotient for Phi(-t) e^(t^2 / 2), and fewer terms.
void ActivationAssembler::gelu_of_bf16(Lanes x, Lanes scratch) {
    const Lanes t = scratch;
    const Lanes tail = scratch.behind(1);
    const Lanes n = scratch.behind(2);
    const Lanes r = scratch.behind(3);
    split_sides(x, t, tail, kGeluLeft);
    polynomial(tail, t, {0x1.195366p-6F, 0x1.ebb96ep-4F, 0x1.7394b8p-2F, 0x1.fffff2p-2F});
    polynomial(r, t, {0x1.60a0d6p-5F, 0x1.33f16ep-2F, 0x1.e96e3cp-1F, 0x1.860b3ap+0F, 1});
    vmulps(tail, tail, t);
    vdivps(tail, tail, r);
    vmulps(r, t, t);
    set(n, kScaledRounder);
    vfmadd231ps(n, r, -kLog2e / 2);
    vsubps(t, n, kScaledRounder);
    vfmsub231ps(t, r, -kLog2e / 2);
    power_of_two(n);
    polynomial(r, t,
               {0x1.5b94cap-10F, 0x1.3d0ee6p-7F, 0x1.c6b878p-5F, 0x1.ebf96p-3F, 0x1.62e428p-1F});
    vmulps(r, r, t);
    vmulps(tail, tail, n);
    vfmadd231ps(tail, tail, r);
    join_sides(x, tail);
}

// x e / (1 + e) with e = e^z, z = sqrt(8 / pi) (x + 0.044715 x^3).
void ActivationAssembler::gelu_tanh(Lanes x, Lanes scratch) {
    // log2(e) z = -t w (1 - kStretch) with w = kLinear + kCubic t^2. Of the pairs near the exact
    // coefficients this one has their ratio to 2^-35, and kLinear so few bits that w - kLinear is
    // exact.
    constexpr float kLinear = 0x1.26a6cp+1F;
    constexpr float kCubic = 0x1.a59c5ap-4F;
    constexpr float kStretch = -0x1.bd4bacp-14F;
    const Lanes t = scratch;
    const Lanes scale = scratch.behind(1);
    const Lanes w = scratch.behind(2);
    const Lanes low = scratch.behind(3);
    split_sides(x, t, scale, kGeluTanhLeft);
    vmulps(scale, t, t);
    set(w, kLinear);
    vfmadd231ps(w, scale, kCubic);
    // low: the rounding errors of the square and of w, and the stretch.
    vsubps(low, w, kLinear);
    vfmsub231ps(low, scale, kCubic);
    vfmsub231ps(scale, t, t);
    vfmadd231ps(low, scale, kCubic);
    vfnmadd231ps(low, w, kStretch);
    set(scale, kScaledRounder);
    vfnmadd231ps(scale, t, w);
    vsubps(scale, scale, kScaledRounder);
    vfnmsub213ps(w, t, scale);
    vfnmadd231ps(w, t, low);
    // Rounded once more rather than kept: a register less.
    vaddps(scale, scale, kScaledRounder);
    power_of_two(scale);
    logistic_tail(t, w, scale, low);
    join_sides(x, t);
}

// x e / (1 + e) with e = e^x.
void ActivationAssembler::swish(Lanes x, Lanes scratch) {
    const Lanes t = scratch;
    const Lanes scale = scratch.behind(1);
    const Lanes r = scratch.behind(2);
    split_sides(x, t, scale, kSwishLeft);
    set(scale, kScaledRounder);
    vfnmadd231ps(scale, t, kLog2e);
    vsubps(r, scale, kScaledRounder);
    vfnmsub231ps(r, t, kLog2e);
    vfnmadd231ps(r, t, kLog2eLow);
    power_of_two(scale);
    logistic_tail(t, r, scale, scratch.behind(3));
    join_sides(x, t);
}

// x F(x) with F(x) = 1 - F(-x) is max(x, 0) - t F(-t) with t = |x|, so only the left side needs
// computing. max(x, 0) replaces x and carries NaN and the sign of zero.
void ActivationAssembler::split_sides(Lanes x, Lanes t, Lanes zeros, float most) {
    vandps(t, x, kAllButSign);
    vminps(t, t, most);
    zero(zeros);
    relu(x, zeros);
}

void ActivationAssembler::join_sides(Lanes x, Lanes tail) { vfnmadd231ps(x, tail, kUnscale); }

// t e / (1 + e) with e = scale 2^r, in `t`. Because scale is a power of two, t e is rounded once.
void ActivationAssembler::logistic_tail(Lanes t, Lanes r, Lanes scale, Lanes free) {
    exp2_less_one(free, r);
    vmulps(t, t, scale);
    vfmadd231ps(t, t, free);
    vfmadd231ps(scale, scale, free);
    logistic_denominator(r, scale);
    vdivps(t, t, r);
}

void ActivationAssembler::logistic_denominator(Lanes denominator, Lanes exponential) {
    set(denominator, 1);
    vfmadd231ps(denominator, exponential, kUnscale);
}

void ActivationAssembler::power_of_two(Lanes rounded) { shift_left(rounded, kSignificandBits); }

// 2^x - 1 for |x| <= 0.52, to 2^-27 of 2^x.
void ActivationAssembler::exp2_less_one(Lanes result, Lanes x) {
    polynomial(result, x,
               {0x1.3f8e32p-13F, 0x1.5f31dcp-10F, 0x1.3b3172p-7F, 0x1.c6af3ep-5F, 0x1.ebfbd6p-3F,
                0x1.62e43p-1F});
    vmulps(result, result, x);
}

// e^x = 2^n e^r with r = x - n ln 2, |r| < 0.35.
void ActivationAssembler::exponential(int value, int scratch, int count) {
    // Their sum is ln 2; the first has so few bits that its products with exponents are exact.
    constexpr float kLn2High = 0x1.62e4p-1F;
    constexpr float kLn2Low = 0x1.7f7d1cp-20F;
    // Beyond these it is infinite, or 0.
    constexpr float kMost = 89;
    constexpr float kLeast = -104;
    // Added to a number it leaves the nearest integer in the last bits, plus twice the bias of an
    // exponent field: that of each of two halves.
    constexpr float kToInteger = 0x1.8p+23F + 254;
    spare_ = scratch + count * kExponentialRegisters;
    const Lanes x{value, count}, r{scratch, count}, n = r.behind(1), p = r.behind(2);
    // min and max return their last operand where one is NaN.
    set(r, kMost);
    vminps(r, r, x);
    set(n, kLeast);
    vmaxps(r, n, r);
    set(n, kToInteger);
    vfmadd231ps(n, r, kLog2e);
    vsubps(n, n, kToInteger);
    vfnmadd231ps(r, n, kLn2High);
    vfnmadd231ps(r, n, kLn2Low);
    polynomial(
        p, r,
        {0x1.6a1f5ap-10F, 0x1.123ccap-7F, 0x1.555904p-5F, 0x1.55548ep-3F, 0x1.fffffcp-2F, 1, 1});
    if (!avx512()) vaddps(n, n, kToInteger);
    scale_by_power(x, p, n, r);
}

// x times 2^exponent, which is an integer as float32 and may lie so far out that the result is
// subnormal: then it is rounded once. On AVX2 the exponents are what the last bits hold, plus two
// biases, and both halves of them are applied in turn, of which the first is exact.
void ActivationAssembler::scale_by_power(Lanes to, Lanes x, Lanes exponents, Lanes scratch) {
    for (int lane = 0; lane < to.count; ++lane) {
        const Vector d = vector(to.at(lane)), p = vector(x.at(lane));
        const Vector n = vector(exponents.at(lane)), half = vector(scratch.at(lane));
        if (avx512()) {
            vscalefps(d, p, n);
            continue;
        }
        vpsrld(half, n, 1);
        vpsubd(n, n, half);
        for (const Vector& part : {half, n}) vpslld(part, part, kSignificandBits);
        VectorAssembler::vmulps(p, p, half);
        VectorAssembler::vmulps(d, p, n);
    }
}

// By Horner's rule; terms from the highest power down.
void ActivationAssembler::polynomial(Lanes result, Lanes x, std::initializer_list<float> terms) {
    set(result, *terms.begin());
    for (auto term = terms.begin() + 1; term != terms.end(); ++term) {
        vfmadd213ps(result, x, *term);
    }
}

void ActivationAssembler::set(Lanes to, float value) {
    load_constant(to.first, std::bit_cast<std::uint32_t>(value));
    for (int lane = 1; lane < to.count; ++lane) copy(to.at(lane), to.first);
}

void ActivationAssembler::zero(Lanes to) {
    for (int lane = 0; lane < to.count; ++lane) VectorAssembler::zero(to.at(lane));
}

void ActivationAssembler::shift_left(Lanes x, std::uint8_t bits) {
    for (int lane = 0; lane < x.count; ++lane) shift_words_left(x.at(lane), bits);
}

void ActivationAssembler::relu(Lanes x, Lanes zeros) {
    for (int lane = 0; lane < x.count; ++lane) VectorAssembler::relu(x.at(lane), zeros.at(lane));
}

}  // namespace dlprim
