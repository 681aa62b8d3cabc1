#include "rows/functions/elementary.h"
#include "rows/functions/words.h"

namespace dlprim {
namespace {

// x between two numbers; NaN stays.
RowValue clamped(RowValue x, float least, float most) {
    return larger(RowValue(least), smaller(RowValue(most), x));
}

// (e^x - 1) / 4, whose power of two is a float for every x whose sinh is finite.
RowValue quarter_of_expm1(RowValue x) {
    constexpr float kLn2High = 0x1.62e4p-1F;
    constexpr float kLn2Low = 0x1.7f7d1cp-20F;
    const RowValue in_range = clamped(x, -20, 89.5F);
    const RowValue n = nearest(in_range * 0x1.715476p+0F);
    const RowValue r = multiply_add(-n, kLn2Low, multiply_add(-n, kLn2High, in_range));
    const RowValue curve = polynomial(r, {0x1.9e864ap-13F, 0x1.6d404ap-10F, 0x1.1112d2p-7F,
                                          0x1.5554f4p-5F, 0x1.555554p-3F, 0.5F});
    const RowValue scale = power_of_two(n - 2.0F);
    return multiply_add(scale, multiply_add(curve * r, r, r), scale - 0.25F);
}

}  // namespace

RowValue exp2(RowValue x) {
    const RowValue in_range = clamped(x, -160, 136);
    const RowValue n = nearest(in_range);
    return scaled(small_power(in_range - n), n);
}

RowValue exp10(RowValue x) {
    constexpr float kLog2Of10 = 0x1.a934fp+1F;
    constexpr float kLog10Of2 = 0x1.344p-2F;  // 10 bits: its product with an exponent is exact
    constexpr float kLog10Of2Low = 0x1.3509f8p-18F;
    const RowValue in_range = clamped(x, -47, 40);
    const RowValue n = nearest(in_range * kLog2Of10);
    const RowValue r = multiply_add(-n, kLog10Of2Low, multiply_add(-n, kLog10Of2, in_range));
    return scaled(small_power(r * kLog2Of10), n);
}

RowValue expm1(RowValue x) { return select(abs(x) < 0x1p-24F, x, 4.0F * quarter_of_expm1(x)); }

// (E + E / (E + 1)) / 2 with E = e^|x| - 1.
RowValue sinh(RowValue x) {
    const RowValue quarter = quarter_of_expm1(abs(x));
    const RowValue below = smaller(multiply_add(4.0F, quarter, 1.0F), 0x1p127F);
    const RowValue size = 2.0F * (quarter + quarter / below);
    return select(abs(x) < 0x1p-12F, x, signed_as(x, size));
}

RowValue cosh(RowValue x) {
    const RowValue quarter = quarter_of_expm1(abs(x)) + 0.25F;
    return 2.0F * (quarter + 0.0625F / quarter);
}

// x tanh(log(1 + e)) = x w / (w + 2) with e = e^x, w = e (e + 2).
RowValue mish(RowValue x) {
    const RowValue power = exp(smaller(RowValue(30.0F), x));
    const RowValue w = power * (power + 2.0F);
    return larger(RowValue(-200.0F), x) * (w / (w + 2.0F));
}

}  // namespace dlprim
