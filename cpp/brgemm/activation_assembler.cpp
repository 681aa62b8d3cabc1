#include "brgemm/activation_assembler.h"

#include <algorithm>
#include <bit>

namespace dlprim {
namespace {

// x = hi + lo, the remainder of hi being smaller than a float's last place.
constexpr float kLog2e = 0x1.715476p+0F;
constexpr float kLog2eLow = 0x1.4ae0cp-26F;
constexpr float kLn2 = 0x1.62e43p-1F;
// 16 bits, so that its product with an exponent is exact.
constexpr float kTwoLn2 = 0x1.62e4p+0F;
constexpr float kTwoLn2Low = 0x1.7f7d1cp-19F;

// An exponential is computed times 2^64. It stays a normal number down to 2^-190, and so does
// every product with it; the last instruction takes the factor away and rounds once.
constexpr int kScale = 64;
constexpr float kUnscale = 0x1p-64F;

// A float near it has an integer in its last bits, so adding it rounds; the integer is off by the
// bias of an exponent field and becomes one when it is shifted there.
constexpr float kRounder = 0x1.8p+23F + 127;
constexpr float kScaledRounder = kRounder + kScale;
constexpr std::uint8_t kSignificandBits = 23;

constexpr std::size_t kCacheLine = 64;

// Beyond these the result is that at infinity, to rounding: 0 on the left, x or 1 on the right.
constexpr float kSigmoidLeft = -120;
constexpr float kSigmoidRight = 30;
constexpr float kTanhRight = 20;  // of 2x
constexpr float kSwishLeft = -120;
constexpr float kGeluLeft = -14.5F;
constexpr float kGeluTanhLeft = -11;

const float kSignBit = std::bit_cast<float>(0x80000000U);
const float kAllButSign = std::bit_cast<float>(0x7FFFFFFFU);

}  // namespace

void ActivationAssembler::activate(Activation activation, int value, int scratch) {
    const Vector x = vector(value);
    switch (activation) {
        case Activation::none: break;
        case Activation::relu:
            zero(scratch);
            relu(value, scratch);
            break;
        case Activation::sigmoid: sigmoid(x, scratch); break;
        case Activation::tanh: tanh(x, scratch); break;
        case Activation::gelu: gelu(x, scratch); break;
        case Activation::gelu_tanh: gelu_tanh(x, scratch); break;
        case Activation::swish: swish(x, scratch); break;
    }
}

// e^x / (1 + e^x).
void ActivationAssembler::sigmoid(const Vector& x, int scratch) {
    const Vector scale = vector(scratch);
    const Vector r = vector(scratch + 1);
    // min and max return their last operand when one is NaN.
    set(scale, kSigmoidRight);
    vminps(x, scale, x);
    set(scale, kSigmoidLeft);
    vmaxps(x, scale, x);
    set(scale, kScaledRounder);
    vfmadd231ps(scale, x, constant(kLog2e));
    round(r, scale);
    vfmsub231ps(r, x, constant(kLog2e));
    vfmadd231ps(r, x, constant(kLog2eLow));
    power_of_two(scale);
    exp2_less_one(x, r);
    vfmadd231ps(scale, scale, x);
    logistic_denominator(r, scale);
    vdivps(x, scale, r);
    vmulps(x, x, constant(kUnscale));
}

// (e^2x - 1) / (e^2x + 1) of |x|, with the sign of x.
void ActivationAssembler::tanh(const Vector& x, int scratch) {
    const Vector r = vector(scratch);
    const Vector scale = vector(scratch + 1);
    const Vector sum = vector(scratch + 2);
    vaddps(r, x, x);
    vandps(r, r, constant(kAllButSign));
    set(scale, kTanhRight);
    vminps(r, scale, r);
    set(scale, kRounder);
    vfmadd231ps(scale, r, constant(kLog2e));
    vsubps(sum, scale, constant(kRounder));
    power_of_two(scale);
    vfnmadd231ps(r, sum, constant(kLn2));
    // e^r - 1 = r + r^2 (...), so that a small x is its own result.
    polynomial(sum, r, {0x1.6b80c8p-10F, 0x1.122cb8p-7F, 0x1.55571p-5F, 0x1.5554aap-3F,
                        0x1.fffffep-2F});
    vmulps(sum, sum, r);
    vfmadd213ps(sum, r, r);
    vsubps(r, scale, constant(1));
    vfmadd231ps(r, scale, sum);
    vaddps(scale, r, constant(2));
    vdivps(r, r, scale);
    vandps(x, x, constant(kSignBit));
    vorps(x, x, r);
}

// x Phi(x). On the left Phi(t) = e^(-t^2/2) P(t) / Q(t), the quotient being a scaled erfc.
void ActivationAssembler::gelu(const Vector& x, int scratch) {
    const Vector t = vector(scratch);
    const Vector scale = vector(scratch + 1);
    const Vector n = vector(scratch + 2);
    const Vector r = vector(scratch + 3);
    split_sides(x, t, scale, kGeluLeft);
    vmulps(r, t, t);
    set(scale, kScaledRounder);
    vfmadd231ps(scale, r, constant(-kLog2e / 2));
    round(n, scale);
    power_of_two(scale);
    // t^2 + 2n ln 2; the first product is exact, so the square needs no second word.
    vmulps(r, n, constant(kTwoLn2));
    vfmadd231ps(r, t, t);
    vfmadd231ps(r, n, constant(kTwoLn2Low));
    polynomial(n, r, {0x1.68744ep-16F, -0x1.123e78p-12F, 0x1.555b7cp-9F, -0x1.55548ap-6F,
                      0x1.fffff8p-4F, -0x1p-1F});
    vmulps(n, n, r);
    vmulps(scale, scale, t);
    vfmadd231ps(scale, scale, n);
    set(n, 2);
    vfmadd231ps(n, t, constant(-0x1.40d932p+1F));
    vdivps(scale, scale, n);
    polynomial(n, t, {-0x1.7379d6p-7F, 0x1.5e1dccp-4F, -0x1.2b9b1ap-2F, 0x1.d25c4p-2F});
    vmulps(n, n, t);
    polynomial(r, t, {0x1.d19bf8p-7F, -0x1.ff8dd2p-4F, 0x1.13a864p-1F, -0x1.4e64a8p+0F,
                      0x1.bd856cp+0F, -1});
    vdivps(n, n, r);
    vfmadd231ps(scale, scale, n);
    join_sides(x, scale);
}

// x e^z / (1 + e^z) with z = sqrt(8 / pi) (x + 0.044715 x^3).
void ActivationAssembler::gelu_tanh(const Vector& x, int scratch) {
    // z log2(e) = t w (1 - kStretch) with w = kLinear + kCubic t^2: of the pairs near the exact
    // coefficients, one whose ratio is right to 2^-35.
    constexpr float kLinear = 0x1.26a6cp+1F;  // few bits: w - kLinear is exact
    constexpr float kCubic = 0x1.a59c5ap-4F;
    constexpr float kStretch = -0x1.bd4bacp-14F;
    const Vector t = vector(scratch);
    const Vector scale = vector(scratch + 1);
    const Vector w = vector(scratch + 2);
    const Vector low = vector(scratch + 3);
    split_sides(x, t, scale, kGeluTanhLeft);
    // w + low: what the rounding of the square and of the sum left out, and the stretch.
    vmulps(scale, t, t);
    set(w, kLinear);
    vfmadd231ps(w, scale, constant(kCubic));
    vsubps(low, w, constant(kLinear));
    vfmsub231ps(low, scale, constant(kCubic));
    vfmsub231ps(scale, t, t);
    vfmadd231ps(low, scale, constant(kCubic));
    vfnmadd231ps(low, w, constant(kStretch));
    set(scale, kScaledRounder);
    vfmadd231ps(scale, t, w);
    round(scale, scale);
    vfmsub213ps(w, t, scale);
    vfmadd231ps(w, t, low);
    vaddps(scale, scale, constant(kScaledRounder));
    power_of_two(scale);
    logistic_tail(t, w, scale, low);
    join_sides(x, t);
}

// x e^x / (1 + e^x).
void ActivationAssembler::swish(const Vector& x, int scratch) {
    const Vector t = vector(scratch);
    const Vector scale = vector(scratch + 1);
    const Vector r = vector(scratch + 2);
    const Vector power = vector(scratch + 3);
    split_sides(x, t, scale, kSwishLeft);
    set(scale, kScaledRounder);
    vfmadd231ps(scale, t, constant(kLog2e));
    round(r, scale);
    vfmsub231ps(r, t, constant(kLog2e));
    vfmadd231ps(r, t, constant(kLog2eLow));
    power_of_two(scale);
    logistic_tail(t, r, scale, power);
    join_sides(x, t);
}

// A gate F with F(x) = 1 - F(-x) gives x F(x) = max(x, 0) + t F(t) with t = -|x|: only the left
// side is computed. Leaves max(x, 0) in `x`, where NaN and the sign of zero survive.
void ActivationAssembler::split_sides(const Vector& x, const Vector& left, const Vector& zeros,
                                      float lowest) {
    vorps(left, x, constant(kSignBit));
    vmaxps(left, left, constant(lowest));
    zero(zeros.getIdx());
    relu(x.getIdx(), zeros.getIdx());
}

void ActivationAssembler::join_sides(const Vector& x, const Vector& tail) {
    vfmadd231ps(x, tail, constant(kUnscale));
}

// t e / (1 + e) with e = scale 2^r, in `t`. As scale is a power of two, t e has one rounding.
void ActivationAssembler::logistic_tail(const Vector& t, const Vector& r, const Vector& scale,
                                        const Vector& free) {
    exp2_less_one(free, r);
    vmulps(t, t, scale);
    vfmadd231ps(t, t, free);
    vfmadd231ps(scale, scale, free);
    logistic_denominator(r, scale);
    vdivps(t, t, r);
}

void ActivationAssembler::logistic_denominator(const Vector& denominator,
                                               const Vector& exponential) {
    set(denominator, 1);
    vfmadd231ps(denominator, exponential, constant(kUnscale));
}

// The integer in `scale`, a float near kScaledRounder, as a float.
void ActivationAssembler::round(const Vector& integer, const Vector& scale) {
    vsubps(integer, scale, constant(kScaledRounder));
}

void ActivationAssembler::power_of_two(const Vector& scale) {
    vpslld(scale, scale, kSignificandBits);
}

// 2^x - 1 for |x| <= 0.52.
void ActivationAssembler::exp2_less_one(const Vector& result, const Vector& x) {
    polynomial(result, x, {0x1.3f8e32p-13F, 0x1.5f31dcp-10F, 0x1.3b3172p-7F, 0x1.c6af3ep-5F,
                           0x1.ebfbd6p-3F, 0x1.62e43p-1F});
    vmulps(result, result, x);
}

// Terms from the highest power down.
void ActivationAssembler::polynomial(const Vector& result, const Vector& x,
                                     std::initializer_list<float> terms) {
    set(result, *terms.begin());
    for (auto term = terms.begin() + 1; term != terms.end(); ++term) {
        vfmadd213ps(result, x, constant(*term));
    }
}

void ActivationAssembler::set(const Vector& to, float value) {
    if (avx512()) {
        vbroadcastss(to, ptr[slot(value)]);
    } else {
        vmovups(to, ptr[slot(value)]);
    }
}

Xbyak::Address ActivationAssembler::constant(float value) {
    return avx512() ? ptr_b[slot(value)] : ptr[slot(value)];
}

// Where the constant will be; AVX2 reads it from memory only in every lane.
Xbyak::RegRip ActivationAssembler::slot(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const auto found = std::find(constants_.begin(), constants_.end(), bits);
    const auto index = static_cast<int>(found - constants_.begin());
    if (found == constants_.end()) constants_.push_back(bits);
    return rip + table_ + index * (avx512() ? 4 : vector_bytes());
}

void ActivationAssembler::emit_activation_constants() {
    if (constants_.empty()) return;
    // By offset: the code is copied to the start of a page from a buffer aligned otherwise.
    while (getSize() % kCacheLine != 0) db(0);
    L(table_);
    for (const std::uint32_t bits : constants_) {
        for (int copy = 0; copy < (avx512() ? 1 : vector_bytes() / 4); ++copy) dd(bits);
    }
}

}  // namespace dlprim
