#include "rows/functions/elementary.h"
#include "rows/functions/rare_function.h"
#include "rows/functions/words.h"

namespace dlprim {
RowValue floor(RowValue x) {
    const RowValue whole = nearest(x);
    return select(x < whole, whole - 1.0F, whole);
}

RowValue ceil(RowValue x) { return -floor(-x); }

RowValue trunc(RowValue x) { return signed_as(x, floor(abs(x))); }

RowValue sign(RowValue x) {
    const RowValue zero_or_nan = select(x == 0.0F, 0.0F, x);
    return select(0.0F < x, 1.0F, select(x < 0.0F, -1.0F, zero_or_nan));
}

RowValue copysign(RowValue size, RowValue x) { return signed_as(x, abs(size)); }

// The quotient may be one too many or too few, and the remainder is exact.
RowValue fmod(RowValue a, RowValue b) {
    const RowValue size = abs(a), by = abs(b), quotient = size / by;
    const RowValue whole = floor(quotient);
    RowValue rest = select(whole == 0.0F, size, multiply_add(-whole, by, size));
    rest = select(rest < 0.0F, rest + by, rest);
    rest = select(by <= rest, rest - by, rest);
    return unless_rare(RareFunction::fmod, quotient, signed_as(a, rest), a, b);
}

RowValue remainder(RowValue a, RowValue b) {
    const RowValue rest = fmod(a, b);
    const RowValue is_opposite = exclusive_or(rest, b, 0.0F);
    const RowValue other = select(words_at_least(is_opposite, word(kSign)), rest + b, rest);
    return select(rest == 0.0F, signed_as(b, 0.0F), other);
}

RowValue fdim(RowValue a, RowValue b) { return select(a <= b, 0.0F, a - b); }

RowValue hypot(RowValue a, RowValue b) {
    const RowValue largest = larger(abs(a), abs(b));
    // Neither squares nor their sum go beyond what float32 has.
    const RowCondition is_large = 0x1p60F < largest, is_small = largest < 0x1p-60F;
    const RowValue scale = select(is_large, 0x1p-70F, select(is_small, 0x1p90F, 1.0F));
    const RowValue back = select(is_large, 0x1p70F, select(is_small, 0x1p-90F, 1.0F));
    const RowValue x = a * scale, y = b * scale;
    const RowValue found = sqrt(multiply_add(x, x, y * y)) * back;
    const RowValue known = select(abs(b) == kInfinity, kInfinity, found);
    return select(abs(a) == kInfinity, kInfinity, known);
}

}  // namespace dlprim
