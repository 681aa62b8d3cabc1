#include "rows/functions/elementary.h"
#include "rows/functions/rare_function.h"
#include "rows/functions/words.h"

namespace dlprim {
namespace {

// Half of pi in three words.
constexpr float kHalfPi = 0x1.921fb6p+0F;
constexpr float kHalfPiLow = -0x1.777a5cp-25F;
constexpr float kHalfPiLowest = -0x1.ee59dap-50F;
constexpr float kPi = 2 * kHalfPi;
constexpr float kPiLow = 2 * kHalfPiLow;

// An angle r of up to 0.8, and how many right angles it is short of the whole, as a word in its
// last bits.
struct Angle {
    RowValue r;
    RowValue quarters;
};

// n as a word, in the last bits of a float.
RowValue as_word(RowValue n) { return n + 0x1.8p23F; }

// Exact to the rounding of r up to the size at which rare functions begin: products of n with the
// words of pi are inside of FMAs, and the first difference is exact.
Angle angle_of(RowValue size) {
    const RowValue n = nearest(size * 0x1.45f306p-1F), less = -n;
    const RowValue near = multiply_add(less, kHalfPiLow, multiply_add(less, kHalfPi, size));
    return {multiply_add(less, kHalfPiLowest, near), as_word(n)};
}

// Of an angle in units of pi.
Angle angle_of_turns(RowValue size) {
    const RowValue within = multiply_add(nearest(size * 0.5F), -2.0F, size);
    const RowValue n = nearest(within + within);
    return {multiply_add(n, -0.5F, within) * kPi, as_word(n)};
}

RowValue small_sine(RowValue r) {
    const RowValue square = r * r;
    const RowValue terms =
        polynomial(square, {0x1.7a8d6cp-19F, -0x1.a053fep-13F, 0x1.11117p-7F, -0x1.555556p-3F});
    return multiply_add(terms * square, r, r);
}

RowValue small_cosine(RowValue r) {
    const RowValue square = r * r;
    const RowValue terms = polynomial(
        square, {-0x1.3435dp-22F, 0x1.a06adap-16F, -0x1.6c1758p-10F, 0x1.555556p-5F, -0.5F});
    return multiply_add(terms, square, 1.0F);
}

RowCondition is_odd(RowValue number) {
    return words_at_least(low_product(number, word(kSign)), word(kSign));
}

// The second bit of a word as the sign of a float.
RowValue half_turn(RowValue number) {
    return low_product(high_product(number, word(kSign)), word(kSign));
}

RowValue sine(const Angle& angle, RowValue x) {
    const RowCondition odd = is_odd(angle.quarters);
    const RowValue size = select(odd, small_cosine(angle.r), small_sine(angle.r));
    return exclusive_or(exclusive_or(size, x, abs(x)), half_turn(angle.quarters), 0.0F);
}

RowValue cosine(const Angle& angle) {
    const RowCondition odd = is_odd(angle.quarters);
    const RowValue size = select(odd, small_sine(angle.r), small_cosine(angle.r));
    return exclusive_or(size, half_turn(add_words(angle.quarters, word(1))), 0.0F);
}

// asin s - s and s, of x up to a half, or of sqrt((1 - x) / 2), whose angle is half of what is
// missing to the right angle.
struct ArcSine {
    RowValue s;
    RowValue more;
};

ArcSine arc_sine(RowValue size, const RowCondition& is_large) {
    const RowValue square = select(is_large, multiply_add(size, -0.5F, 0.5F), size * size);
    const RowValue s = select(is_large, sqrt(square), size);
    const RowValue terms = polynomial(square, {0x1.34cf36p-5F, 0x1.d5129ep-7F, 0x1.04d366p-5F,
                                               0x1.6ca75p-5F, 0x1.3338acp-4F, 0x1.55554cp-3F});
    return {s, terms * square * s};
}

// Of a number from 0 to 1.
RowValue small_arc_tangent(RowValue t) {
    const RowValue square = t * t;
    const RowValue terms = polynomial(
        square, {-0x1.d4984ap-10F, 0x1.64c1cep-7F, -0x1.fdfc1cp-6F, 0x1.da5ed4p-5F, -0x1.58155ep-4F,
                 0x1.c08f64p-4F, -0x1.2420b6p-3F, 0x1.9991e6p-3F, -0x1.55553ep-2F});
    return multiply_add(terms * square, t, t);
}

RowValue to_right_angle(RowValue angle) { return kHalfPi - (angle - kHalfPiLow); }

}  // namespace

RowValue sin(RowValue x) {
    return unless_rare(RareFunction::sin, abs(x), sine(angle_of(abs(x)), x), x, x);
}

RowValue cos(RowValue x) {
    return unless_rare(RareFunction::cos, abs(x), cosine(angle_of(abs(x))), x, x);
}

RowValue tan(RowValue x) {
    const auto [r, quarters] = angle_of(abs(x));
    const RowValue sine = small_sine(r), cosine = small_cosine(r);
    const RowCondition odd = is_odd(quarters);
    const RowValue size = select(odd, -cosine, sine) / select(odd, sine, cosine);
    return unless_rare(RareFunction::tan, abs(x), signed_as(x, size), x, x);
}

RowValue sinpi(RowValue x) { return sine(angle_of_turns(abs(x)), x); }
RowValue cospi(RowValue x) { return cosine(angle_of_turns(abs(x))); }

RowValue asin(RowValue x) {
    const RowCondition is_large = 0.5F < abs(x);
    const auto [s, more] = arc_sine(abs(x), is_large);
    const RowValue missing = multiply_add(s, 2.0F, multiply_add(more, 2.0F, -kHalfPiLow));
    return signed_as(x, select(is_large, kHalfPi - missing, s + more));
}

RowValue acos(RowValue x) {
    const RowCondition is_large = 0.5F < abs(x);
    const auto [s, more] = arc_sine(abs(x), is_large);
    const RowValue near_one = (s + more) + (s + more);
    const RowValue large = select(x < 0.0F, kPi - (near_one - kPiLow), near_one);
    return select(is_large, large, kHalfPi - (x + (signed_as(x, more) - kHalfPiLow)));
}

RowValue atan(RowValue x) {
    const RowCondition is_large = 1.0F < abs(x);
    const RowValue angle = small_arc_tangent(select(is_large, 1.0F / abs(x), abs(x)));
    return signed_as(x, select(is_large, to_right_angle(angle), angle));
}

RowValue atan2(RowValue y, RowValue x) {
    const RowValue least = smaller(abs(x), abs(y)), most = larger(abs(x), abs(y));
    const RowValue ratio =
        select(most == 0.0F, 0.0F, select(least == kInfinity, 1.0F, least / most));
    RowValue angle = small_arc_tangent(ratio);
    angle = select(abs(x) < abs(y), to_right_angle(angle), angle);
    angle = select(words_at_least(x, word(kSign)), kPi - (angle - kPiLow), angle);
    return select(is_nan(x), x, select(is_nan(y), y, signed_as(y, angle)));
}

}  // namespace dlprim
