#include "jit/activation.h"
#include "rows/functions/elementary.h"
#include "rows/functions/words.h"

namespace dlprim {

// Near zero a polynomial; beyond 1 - 2^p with a polynomial for the logarithm of what is missing.
RowValue erf(RowValue x) {
    const RowValue size = smaller(RowValue(4.0F), abs(x));
    const RowValue terms =
        polynomial(size * size, {-0x1.58e2dap-11F, 0x1.4db5fp-8F, -0x1.b77f4ap-6F, 0x1.ce290cp-4F,
                                 -0x1.812734p-2F, 0x1.06eba8p-3F});
    const RowValue logarithm =
        polynomial(size, {-0x1.b3dcf2p-16F, 0x1.2e93e8p-11F, -0x1.7b3428p-8F, 0x1.2417dap-5F,
                          -0x1.3e29b8p-3F, -0x1.d435b8p-1F, -0x1.a112fp+0F, 0x1.7fcce2p-13F});
    const RowValue n = nearest(logarithm), power = small_power(logarithm - n);
    const RowValue far = multiply_add(-power, power_of_two(n), 1.0F);
    return signed_as(x, select(size < 0.78F, multiply_add(terms, size, size), far));
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
