#include <array>

#include "rows/functions/elementary.h"
#include "rows/functions/words.h"

namespace dlprim {
namespace {

// A number and what it lacks, which is smaller than its last bit.
struct Pair {
    RowValue high;
    RowValue low;
};

// Significands below `below` are multiplied by a factor of few bits, exactly, which leaves them
// within 0.084 of 1; of the factor -log2 in two words.
struct Factor {
    float below, factor, high, low;
};
constexpr std::array kFactors = {
    Factor{0.735F, 1.4375F, -0x1.0c105p-1F, -0x1.ac754cp-30F},
    Factor{0.805F, 1.3125F, -0x1.91bba8p-2F, -0x1.23e2e2p-27F},
    Factor{0.89F, 1.1875F, -0x1.fbc16cp-3F, 0x1.bf65fep-29F},
    Factor{0.9375F, 1.0625F, -0x1.663f7p-4F, 0x1.4dbb3ap-30F},
    Factor{1.0625F, 1, 0, 0},
    Factor{1.2F, 0.875F, 0x1.8a898p-3F, 0x1.57f7a6p-28F},
    Factor{kInfinity, 0.8125F, 0x1.32bfeep-2F, 0x1.b87734p-29F},
};

// ln(1 + t).
Pair small_logarithm(RowValue t) {
    const RowValue square = t * t;
    const RowValue lost = multiply_add(t, t, -square);
    const RowValue terms = polynomial(
        t, {0x1.1ac526p-3F, -0x1.575c9ep-3F, 0x1.99abb8p-3F, -0x1.ffff0ap-3F, 0x1.555552p-2F});
    const RowValue high = multiply_add(square, -0.5F, t);
    const RowValue rest = multiply_add(square, -0.5F, t - high);
    return {high, rest + multiply_add(lost, -0.5F, terms * (square * t))};
}

// log2 to some 40 bits.
Pair precise_logarithm(RowValue x) {
    constexpr float kLog2OfE = 0x1.715476p+0F, kLog2OfELow = 0x1.4ae0cp-26F;
    const auto [n, significand] = significand_of(x);
    RowValue factor = kFactors.back().factor;
    RowValue high = kFactors.back().high, low = kFactors.back().low;
    for (auto it = kFactors.rbegin() + 1; it != kFactors.rend(); ++it) {
        const RowCondition is_below = significand < it->below;
        factor = select(is_below, it->factor, factor);
        high = select(is_below, it->high, high);
        low = select(is_below, it->low, low);
    }
    const Pair natural = small_logarithm(multiply_add(significand, factor, -1.0F));
    const RowValue product = natural.high * kLog2OfE;
    RowValue rest = multiply_add(natural.high, kLog2OfE, -product);
    rest = multiply_add(natural.high, kLog2OfELow, multiply_add(natural.low, kLog2OfE, rest));
    // n, or a factor's logarithm where that is 0, is the larger one.
    const RowValue first = n + high, lost_first = (n - first) + high;
    const RowValue sum = first + product, back = sum - first;
    const RowValue lost = (first - (sum - back)) + (product - back);
    const RowValue small = lost + ((lost_first + low) + rest);
    const RowValue total = sum + small;
    return {total, (sum - total) + small};
}

// |x|^y of finite numbers that are not zero; 0 and infinity beyond what float32 has.
RowValue power_of_size(const Pair& logarithm, RowValue y) {
    const RowValue product = y * logarithm.high;
    const RowValue lost = multiply_add(y, logarithm.low, multiply_add(y, logarithm.high, -product));
    const RowValue exponent = larger(RowValue(-200.0F), smaller(RowValue(200.0F), product));
    const RowValue n = nearest(exponent);
    // Of products without bounds no number is lost.
    const RowValue r = (exponent - n) + select(abs(lost) < 1.0F, lost, 0.0F);
    return scaled(small_power(r), n);
}

}  // namespace

RowValue pow(RowValue x, RowValue y) {
    const RowValue size = abs(x), half = y * 0.5F;
    const Pair found = precise_logarithm(size);
    const RowValue at_edges = select(size == 0.0F, -kInfinity, size);
    const RowCondition is_zero = size == 0.0F, is_finite = size < kInfinity;
    const Pair logarithm = {select(is_zero, -kInfinity, select(is_finite, found.high, at_edges)),
                            select(is_zero, 0.0F, select(is_finite, found.low, 0.0F))};
    const RowValue power = power_of_size(logarithm, y);
    // Of x below zero, and of -0: whole exponents alone, and odd ones keep the sign.
    const RowValue odd = select(nearest(half) == half, power, exclusive_or(power, x, size));
    const RowValue other = select(is_zero, power, select(is_finite, kNan, power));
    const RowValue whole = select(nearest(y) == y, odd, other);
    const RowValue of_sign = select(words_at_least(x, word(kSign)), whole, power);
    const RowValue of_numbers = select(is_nan(x), x, select(is_nan(y), y, of_sign));
    const RowValue of_one =
        select(size == 1.0F, select(abs(y) == kInfinity, 1.0F, of_numbers), of_numbers);
    return select(y == 0.0F, 1.0F, select(x == 1.0F, 1.0F, of_one));
}

RowValue cbrt(RowValue x) {
    // A third of the bits is a root within 6 %, which two steps of Halley's and one of Newton's
    // with the exact error make right.
    constexpr std::uint32_t kThird = 0x55555556U, kBias = 0x2a5119f2U;
    const RowValue size = abs(x);
    const RowCondition is_small = size < 1.0F;
    const RowValue y = size * select(is_small, 0x1p48F, 0x1p-24F);
    RowValue root = add_words(high_product(y, word(kThird)), word(kBias));
    for (int step = 0; step < 2; ++step) {
        const RowValue cube = root * root * root;
        root = root * ((cube + (y + y)) / ((cube + cube) + y));
    }
    const RowValue square = root * root;
    const RowValue error =
        multiply_add(multiply_add(root, root, -square), root, multiply_add(square, root, -y));
    root = root - error / (3.0F * square);
    const RowValue found = signed_as(x, root * select(is_small, 0x1p-16F, 0x1p8F));
    return select(size < kInfinity, select(x == 0.0F, x, found), x);
}

}  // namespace dlprim
