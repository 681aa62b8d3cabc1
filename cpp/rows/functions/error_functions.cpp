#include "jit/activation.h"
#include "rows/functions/elementary.h"
#include "rows/functions/words.h"

namespace dlprim {

// Near zero a polynomial; beyond 1 - 2^p with a polynomial for the logarithm of what is missing, of
// which a power to 2^-23 is enough.
RowValue erf(RowValue x) {
    constexpr float kToExponent = 0x1.8p23F + 127;  // leaves the biased exponent in the last bits
    const RowValue size = smaller(RowValue(4.0F), abs(x));
    const RowValue terms = polynomial(size * size, {0x1.1cfb7p-8F, -0x1.b2a038p-6F, 0x1.cdf54ap-4F,
                                                    -0x1.81266ep-2F, 0x1.06eba4p-3F});
    const RowValue logarithm =
        polynomial(size, {-0x1.3b5f6ep-16F, 0x1.074cfep-11F, -0x1.65f3a2p-8F, 0x1.1de806p-5F,
                          -0x1.3c11ap-3F, -0x1.d49f4ap-1F, -0x1.a0fc84p+0F, 0x1.00d954p-13F});
    const RowValue exponent = logarithm + kToExponent;
    const RowValue power = polynomial(logarithm - (exponent - kToExponent),
                                      {0x1.5fb03cp-10F, 0x1.3d378p-7F, 0x1.c6adbep-5F,
                                       0x1.ebf862p-3F, 0x1.62e432p-1F, 0x1.000002p+0F});
    const RowValue scale = low_product(exponent, word(kExponentOne));
    const RowValue far = multiply_add(-power, scale, 1.0F);
    return signed_as(x, select(size < 0.65F, multiply_add(terms, size, size), far));
}

// 2 Phi(-t) with t = sqrt(2) |x|, as gelu has it; t is rounded, and the slope makes up for it.
RowValue erfc(RowValue x) {
    constexpr float kRootOfTwo = 0x1.6a09e6p+0F, kRootOfTwoLow = 0x1.9fcef4p-26F;
    constexpr float kDensity = 0x1.988454p-2F;  // 1 / sqrt(2 pi)
    const RowValue size = smaller(RowValue(20.0F), abs(x));
    const RowValue product = size * kRootOfTwo;
    const RowValue lost =
        multiply_add(size, kRootOfTwoLow, multiply_add(size, kRootOfTwo, -product));
    const RowValue t = larger(RowValue(0x1p-60F), product);
    const RowValue tail = activated(Activation::gelu, -t) / -t;
    const RowValue slope = kDensity * exp(t * t * -0.5F);
    const RowValue twice = 2.0F * multiply_add(-lost, slope, tail);
    return select(x < 0.0F, 2.0F - twice, twice);
}

// gelu(x) / x.
RowValue normcdf(RowValue x) {
    const RowValue within = larger(RowValue(-60.0F), smaller(RowValue(40.0F), x));
    const RowValue found = activated(Activation::gelu, within) / within;
    return select(abs(x) < 0x1p-30F, 0.5F, found);
}

}  // namespace dlprim
