#include "rows/functions/elementary.h"
#include "rows/functions/words.h"

namespace dlprim {
namespace {

constexpr float kLn2 = 0x1.62e43p-1F;
constexpr float kSquareOverflows = 1e9F;  // and 1 is nothing beside it

// ln(1 + t) - t for t from -1/3 to 1/3.
RowValue curve_of_log(RowValue t) {
    const RowValue terms =
        polynomial(t, {-0x1.0823fcp-3F, 0x1.1edb4p-3F, -0x1.f309cep-4F, 0x1.1ec0fp-3F,
                       -0x1.559dcep-3F, 0x1.99d16ap-3F, -0x1.fffef2p-3F, 0x1.555504p-2F, -0.5F});
    return terms * (t * t);
}

// What is no positive number.
RowValue with_edges(RowValue x, RowValue logarithm) {
    const RowValue known = select(x < kInfinity, logarithm, x);
    return select(0.0F < x, known, select(x == 0.0F, -kInfinity, select(is_nan(x), x, kNan)));
}

// t times a constant of two words, and the curve times it: the last product is rounded once.
struct Base {
    float high, low;
};

RowValue low_part(const Base& base, RowValue t, RowValue product) {
    const RowValue rounded_off = multiply_add(t, base.high, -product);
    return multiply_add(curve_of_log(t), base.high, multiply_add(t, base.low, rounded_off));
}

}  // namespace

RowValue log2(RowValue x) {
    constexpr Base kBase{0x1.715476p+0F, 0x1.4ae0cp-26F};
    const auto [n, significand] = significand_of(x);
    const RowValue t = significand - 1.0F, product = t * kBase.high;
    return with_edges(x, n + (product + low_part(kBase, t, product)));
}

RowValue log10(RowValue x) {
    constexpr Base kBase{0x1.bcb7b2p-2F, -0x1.5b235ep-27F};
    constexpr Base kOf2{0x1.344p-2F, 0x1.3509f8p-18F};  // exact times an exponent, and the rest
    const auto [n, significand] = significand_of(x);
    const RowValue t = significand - 1.0F, product = t * kBase.high;
    const RowValue low = multiply_add(n, kOf2.low, low_part(kBase, t, product));
    return with_edges(x, multiply_add(n, kOf2.high, product + low));
}

// log(u) + c / u, where u is 1 + x rounded and c what that lost.
RowValue log1p(RowValue x) {
    const RowValue u = x + 1.0F;
    // No number where x is infinite: 1 then, which is nothing.
    const RowValue lost = smaller(x - (u - 1.0F), 1.0F);
    return select(x == 0.0F, x, log(u) + lost / larger(u, 0x1p-100F));
}

RowValue softplus(RowValue x) { return larger(x, 0.0F) + log1p(exp(-abs(x))); }

RowValue asinh(RowValue x) {
    const RowValue size = abs(x), square = size * size;
    const RowCondition is_large = kSquareOverflows < size;
    const RowValue near = size + square / (1.0F + sqrt(square + 1.0F));
    const RowValue found = log1p(select(is_large, size, near));
    return signed_as(x, found + select(is_large, kLn2, 0.0F));
}

RowValue acosh(RowValue x) {
    const RowValue above = x - 1.0F;
    const RowCondition is_large = kSquareOverflows < x;
    const RowValue near = above + sqrt(above * (above + 2.0F));
    const RowValue found = log1p(select(is_large, x, near)) + select(is_large, kLn2, 0.0F);
    return select(x < 1.0F, kNan, found);
}

RowValue atanh(RowValue x) {
    const RowValue size = abs(x), twice = size + size;
    const RowValue found = log1p(twice + twice * size / (1.0F - size));
    return select(1.0F < size, kNan, signed_as(x, 0.5F * found));
}

}  // namespace dlprim
