// What elementary functions do to the bits of floats.
#pragma once

#include <bit>
#include <cstdint>
#include <initializer_list>
#include <limits>

#include "rows/row_builder.h"

namespace dlprim {

inline RowValue word(std::uint32_t bits) { return {std::bit_cast<float>(bits)}; }

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
inline constexpr std::uint32_t kSign = 0x80000000U;
inline constexpr std::uint32_t kExponentOne = 1U << 23;

// By Horner's rule; terms from the highest power down.
inline RowValue polynomial(RowValue x, std::initializer_list<float> terms) {
    const auto* term = terms.begin();
    RowValue sum = *term;
    for (++term; term != terms.end(); ++term) sum = multiply_add(sum, x, *term);
    return sum;
}

// `size`, which is positive, with the sign of x.
inline RowValue signed_as(RowValue x, RowValue size) { return exclusive_or(size, x, abs(x)); }

// 2^n of a whole number from -126 to 128, of which 2^128 is infinite.
inline RowValue power_of_two(RowValue n) {
    // Added to n, it leaves the biased exponent in the last bits of the sum.
    constexpr float kToExponent = 0x1.8p23F + 127;
    return low_product(n + kToExponent, word(kExponentOne));
}

// 2^r for |r| <= 0.52.
inline RowValue small_power(RowValue r) {
    const RowValue slope = polynomial(r, {0x1.417a5cp-13F, 0x1.5f0946p-10F, 0x1.3b2dd2p-7F,
                                          0x1.c6af7ap-5F, 0x1.ebfbdcp-3F, 0x1.62e43p-1F});
    return multiply_add(r, slope, 1.0F);
}

// x 2^n, rounded once where n is from -252 to 252.
inline RowValue scaled(RowValue x, RowValue n) {
    const RowValue half = nearest(n * 0.5F);
    return x * power_of_two(half) * power_of_two(n - half);
}

// x = 2^exponent significand of a positive x, the significand from 2/3 to 4/3.
struct Significand {
    RowValue exponent;
    RowValue significand;
};

inline Significand significand_of(RowValue x) {
    constexpr std::uint32_t kTwoThirds = 0x3F2AAAABU;
    constexpr std::uint32_t kBias = 128;  // keeps exponents positive meanwhile
    // A float whose last bits are a whole number beyond its value.
    constexpr float kFromExponent = 0x1p23F;
    const RowCondition is_subnormal = x < 0x1p-126F;
    const RowValue normal = select(is_subnormal, x * 0x1p24F, x);
    const RowValue exponent =
        high_product(add_words(normal, word(kBias * kExponentOne - kTwoThirds)), word(1U << 9));
    const RowValue number =
        add_words(exponent, kFromExponent) - (kFromExponent + static_cast<float>(kBias));
    const RowValue less = low_product(exponent, word(0U - kExponentOne));
    const RowValue significand = add_words(add_words(normal, less), word(kBias * kExponentOne));
    return {select(is_subnormal, number - 24.0F, number), significand};
}

}  // namespace dlprim
