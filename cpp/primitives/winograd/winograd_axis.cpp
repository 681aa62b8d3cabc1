// The one-dimensional transforms as formulas on values of row programs.
#include "primitives/winograd/winograd_transform.h"

namespace dlprim {
namespace {

using Value = AxisValue;
using Values = AxisValues;

constexpr float kA = 0.707106781186547524F;
constexpr float kB = 1.41421356237309505F;

Value times(float factor, Value x) { return x ? Value(factor * *x) : x; }

// x * factor + y
Value plus(Value y, float factor, Value x) {
    if (!x || !y) return x ? times(factor, x) : y;
    return multiply_add(factor, *x, *y);
}

Value plus(Value x, Value y) { return x && y ? Value(*x + *y) : x ? x : y; }

Value minus(Value x, Value y) {
    if (!x || !y) return x ? x : times(-1, y);
    return *x - *y;
}

// A polynomial of even and odd powers at a point and at its opposite.
Given at_both(float point, Value even, Value odd) {
    return {plus(even, point, odd), plus(even, -point, odd)};
}

// ---------------------------------------------------------------- inputs of a tile to slots

Given input4(int pass, const Values& d) {
    if (pass == 2) {
        return {plus(plus(d[0], d[4]), -2.5F, d[2]), plus(plus(d[1], d[5]), -2.5F, d[3])};
    }
    const float point = pass == 0 ? kA : kB;
    const float square = pass == 0 ? 2.0F : 0.5F;
    return at_both(point, plus(d[4], -square, d[2]), plus(d[3], -square, d[1]));
}

Given input3(int pass, const Values& d) {
    if (pass == 1) return {times(2 * kB, plus(d[3], -0.5F, d[1])), {}};
    const Value u = plus(d[3], -kB, d[2]);
    const Value w = plus(d[2], -kB, d[1]);
    if (pass == 0) {
        const Given both = at_both(kA, u, w);
        return {times(kA + kB, both.first), times(kB - kA, both.second)};
    }
    return {times(kB, plus(u, -0.5F, plus(d[1], -kB, d[0]))),
            plus(plus(d[4], -kB, d[3]), -0.5F, w)};
}

Given input2(int pass, const Values& d) {
    if (pass == 0) return {plus(d[2], d[1]), minus(d[2], d[1])};
    return {minus(d[0], d[2]), minus(d[3], d[1])};
}

// ------------------------------------------- gradients of results to slots: the transpose of these

Given gradient4(int pass, const Values& g) {
    if (pass == 2) return {g[0], g[3]};
    const float point = pass == 0 ? kA : kB;
    const float square = pass == 0 ? 0.5F : 2.0F;
    return at_both(point, plus(g[0], square, g[2]), plus(g[1], square, g[3]));
}

Given gradient3(int pass, const Values& g) {
    if (pass == 0) return at_both(kA, plus(g[0], 0.5F, g[2]), g[1]);
    if (pass == 1) return {plus(plus(g[0], 2.0F, g[2]), kB, g[1]), {}};
    return {g[0], g[2]};
}

Given gradient2(int pass, const Values& g) {
    if (pass == 0) return {plus(g[0], g[1]), minus(g[0], g[1])};
    return {g[0], g[1]};
}

// ---------------------------------------------------------------- slots to the results of a tile

Given result4(int pass, const Values& m) {
    const Value at_a = pass == 0 ? plus(m[1], m[2]) : minus(m[1], m[2]);
    const Value at_b = pass == 0 ? plus(m[3], m[4]) : minus(m[3], m[4]);
    if (pass == 0) return {plus(plus(m[0], at_a), at_b), plus(times(0.5F, at_a), 2.0F, at_b)};
    return {plus(times(kA, at_a), kB, at_b), plus(plus(m[5], 0.5F * kA, at_a), 2.0F * kB, at_b)};
}

Given result3(int pass, const Values& m) {
    if (pass == 1) return {plus(times(kA, minus(m[1], m[2])), kB, m[3]), {}};
    const Value at_a = plus(m[1], m[2]);
    return {plus(plus(m[0], at_a), m[3]), plus(plus(m[5], 0.5F, at_a), 2.0F, m[3])};
}

Given result2(int, const Values& m) {
    return {plus(plus(m[0], m[1]), m[2]), plus(minus(m[1], m[2]), m[3])};
}

// ---------------------------------------------------------------- a filter to slots, and back

Given filter4(int pass, const Values& g) {
    if (pass == 2) return {g[0], g[2]};
    const float point = pass == 0 ? kA : kB;
    const float square = pass == 0 ? 0.5F : 2.0F;
    const float scale = pass == 0 ? -2.0F / 3 : 1.0F / 6;
    return at_both(scale * point, times(scale, plus(g[0], square, g[2])), g[1]);
}

Given filter2(int pass, const Values& g) {
    if (pass == 0) return at_both(0.5F, times(0.5F, plus(g[0], g[2])), g[1]);
    return {g[0], g[2]};
}

Given filter_gradient4(int pass, const Values& m) {
    const float scale_a = -2.0F / 3;
    const float scale_b = 1.0F / 6;
    if (pass == 1) {
        return {plus(times(scale_a * kA, minus(m[1], m[2])), scale_b * kB, minus(m[3], m[4])), {}};
    }
    const Value at_a = times(scale_a, plus(m[1], m[2]));
    const Value at_b = times(scale_b, plus(m[3], m[4]));
    return {plus(plus(m[0], at_a), at_b), plus(plus(m[5], 0.5F, at_a), 2.0F, at_b)};
}

Given filter_gradient2(int pass, const Values& m) {
    if (pass == 1) return {times(0.5F, minus(m[1], m[2])), {}};
    const Value even = times(0.5F, plus(m[1], m[2]));
    return {plus(m[0], even), plus(m[3], even)};
}

// ---------------------------------------------------------------- which one

// Points a and -a, then b and -b, then 0 and infinity.
constexpr GivenPlaces kSixSlots[] = {{1, 2}, {3, 4}, {0, 5}};
constexpr GivenPlaces kFiveSlots[] = {{1, 2}, {3, kNone}, {0, 5}};
// Points 1 and -1, then 0 and infinity.
constexpr GivenPlaces kFourSlots[] = {{1, 2}, {0, 3}};
constexpr GivenPlaces kFourResults[] = {{0, 2}, {1, 3}};
constexpr GivenPlaces kThreeResults[] = {{0, 2}, {1, kNone}};
constexpr GivenPlaces kTwoResults[] = {{0, 1}};

// Of tiles of 2, 3 and 4.
constexpr TileAxis kInput[] = {
    {4, kFourSlots, input2}, {5, kFiveSlots, input3}, {6, kSixSlots, input4}};
constexpr TileAxis kGradient[] = {
    {2, kFourSlots, gradient2}, {3, kFiveSlots, gradient3}, {4, kSixSlots, gradient4}};
constexpr TileAxis kResult[] = {
    {4, kTwoResults, result2}, {6, kThreeResults, result3}, {6, kFourResults, result4}};
constexpr TileAxis kFilter[] = {
    {3, kFourSlots, filter2}, {3, kSixSlots, filter4}, {3, kSixSlots, filter4}};
constexpr TileAxis kFilterGradient[] = {{4, kThreeResults, filter_gradient2},
                                        {6, kThreeResults, filter_gradient4},
                                        {6, kThreeResults, filter_gradient4}};

}  // namespace

const TileAxis& axis_of(TileKind kind, int tile) {
    switch (kind) {
        case TileKind::input: return kInput[tile - 2];
        case TileKind::gradient: return kGradient[tile - 2];
        case TileKind::result: return kResult[tile - 2];
        case TileKind::filter_gradient: return kFilterGradient[tile - 2];
        default: return kFilter[tile - 2];
    }
}

}  // namespace dlprim
