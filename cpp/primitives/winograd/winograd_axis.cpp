#include "primitives/winograd/winograd_axis.h"

#include <cstddef>

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

// ---------------------------------------------------------------- inputs of a tile to slots

void input4(int pass, const Values& d, Value& x, Value& y) {
    if (pass == 2) {
        x = plus(plus(d[0], d[4]), -2.5F, d[2]);
        y = plus(plus(d[1], d[5]), -2.5F, d[3]);
    } else {
        const float point = pass == 0 ? kA : kB;
        const float square = pass == 0 ? 2.0F : 0.5F;
        const Value even = plus(d[4], -square, d[2]);
        const Value odd = plus(d[3], -square, d[1]);
        x = plus(even, point, odd);
        y = plus(even, -point, odd);
    }
}

void input3(int pass, const Values& d, Value& x, Value& y) {
    if (pass == 1) {
        x = times(2 * kB, plus(d[3], -0.5F, d[1]));
    } else {
        const Value u = plus(d[3], -kB, d[2]);
        const Value w = plus(d[2], -kB, d[1]);
        if (pass == 0) {
            x = times(kA + kB, plus(u, kA, w));
            y = times(kB - kA, plus(u, -kA, w));
        } else {
            x = times(kB, plus(u, -0.5F, plus(d[1], -kB, d[0])));
            y = plus(plus(d[4], -kB, d[3]), -0.5F, w);
        }
    }
}

void input2(int pass, const Values& d, Value& x, Value& y) {
    if (pass == 0) {
        x = plus(d[2], d[1]);
        y = minus(d[2], d[1]);
    } else {
        x = minus(d[0], d[2]);
        y = minus(d[3], d[1]);
    }
}

// ------------------------------------------- gradients of results to slots: the transpose of these

void gradient4(int pass, const Values& g, Value& x, Value& y) {
    if (pass == 2) {
        x = g[0];
        y = g[3];
    } else {
        const float point = pass == 0 ? kA : kB;
        const float square = pass == 0 ? 0.5F : 2.0F;
        const Value even = plus(g[0], square, g[2]);
        const Value odd = plus(g[1], square, g[3]);
        x = plus(even, point, odd);
        y = plus(even, -point, odd);
    }
}

void gradient3(int pass, const Values& g, Value& x, Value& y) {
    if (pass == 0) {
        const Value even = plus(g[0], 0.5F, g[2]);
        x = plus(even, kA, g[1]);
        y = plus(even, -kA, g[1]);
    } else if (pass == 1) {
        x = plus(plus(g[0], 2.0F, g[2]), kB, g[1]);
    } else {
        x = g[0];
        y = g[2];
    }
}

void gradient2(int pass, const Values& g, Value& x, Value& y) {
    x = pass == 0 ? plus(g[0], g[1]) : g[0];
    y = pass == 0 ? minus(g[0], g[1]) : g[1];
}

// ---------------------------------------------------------------- slots to the results of a tile

void result4(int pass, const Values& m, Value& x, Value& y) {
    if (pass == 0) {
        const Value at_a = plus(m[1], m[2]);
        const Value at_b = plus(m[3], m[4]);
        x = plus(plus(m[0], at_a), at_b);
        y = plus(times(0.5F, at_a), 2.0F, at_b);
    } else {
        const Value at_a = minus(m[1], m[2]);
        const Value at_b = minus(m[3], m[4]);
        x = plus(times(kA, at_a), kB, at_b);
        y = plus(plus(m[5], 0.5F * kA, at_a), 2.0F * kB, at_b);
    }
}

void result3(int pass, const Values& m, Value& x, Value& y) {
    if (pass == 0) {
        const Value at_a = plus(m[1], m[2]);
        x = plus(plus(m[0], at_a), m[3]);
        y = plus(plus(m[5], 0.5F, at_a), 2.0F, m[3]);
    } else {
        x = plus(times(kA, minus(m[1], m[2])), kB, m[3]);
    }
}

void result2(int, const Values& m, Value& x, Value& y) {
    x = plus(plus(m[0], m[1]), m[2]);
    y = plus(minus(m[1], m[2]), m[3]);
}

// ---------------------------------------------------------------- a filter to slots, and back

void filter4(int pass, const Values& g, Value& x, Value& y) {
    if (pass == 2) {
        x = g[0];
        y = g[2];
    } else {
        const float point = pass == 0 ? kA : kB;
        const float square = pass == 0 ? 0.5F : 2.0F;
        const float scale = pass == 0 ? -2.0F / 3 : 1.0F / 6;
        const Value even = times(scale, plus(g[0], square, g[2]));
        x = plus(even, scale * point, g[1]);
        y = plus(even, -scale * point, g[1]);
    }
}

void filter2(int pass, const Values& g, Value& x, Value& y) {
    if (pass == 0) {
        const Value even = times(0.5F, plus(g[0], g[2]));
        x = plus(even, 0.5F, g[1]);
        y = plus(even, -0.5F, g[1]);
    } else {
        x = g[0];
        y = g[2];
    }
}

void filter_gradient4(int pass, const Values& m, Value& x, Value& y) {
    const float scale_a = -2.0F / 3;
    const float scale_b = 1.0F / 6;
    if (pass == 0) {
        const Value at_a = times(scale_a, plus(m[1], m[2]));
        const Value at_b = times(scale_b, plus(m[3], m[4]));
        x = plus(plus(m[0], at_a), at_b);
        y = plus(plus(m[5], 0.5F, at_a), 2.0F, at_b);
    } else {
        x = plus(times(scale_a * kA, minus(m[1], m[2])), scale_b * kB, minus(m[3], m[4]));
    }
}

void filter_gradient2(int pass, const Values& m, Value& x, Value& y) {
    if (pass == 0) {
        const Value even = times(0.5F, plus(m[1], m[2]));
        x = plus(m[0], even);
        y = plus(m[3], even);
    } else {
        x = times(0.5F, minus(m[1], m[2]));
    }
}

// ---------------------------------------------------------------- which one

// Points a and -a, then b and -b, then 0 and infinity.
constexpr Given kSixSlots[] = {{1, 2}, {3, 4}, {0, 5}};
constexpr Given kFiveSlots[] = {{1, 2}, {3, kNone}, {0, 5}};
// Points 1 and -1, then 0 and infinity.
constexpr Given kFourSlots[] = {{1, 2}, {0, 3}};
constexpr Given kFourResults[] = {{0, 2}, {1, 3}};
constexpr Given kThreeResults[] = {{0, 2}, {1, kNone}};
constexpr Given kTwoResults[] = {{0, 1}};

constexpr Axis kInput4 = {6, kSixSlots, input4};
constexpr Axis kInput3 = {5, kFiveSlots, input3};
constexpr Axis kInput2 = {4, kFourSlots, input2};
constexpr Axis kGradient4 = {4, kSixSlots, gradient4};
constexpr Axis kGradient3 = {3, kFiveSlots, gradient3};
constexpr Axis kGradient2 = {2, kFourSlots, gradient2};
constexpr Axis kResult4 = {6, kFourResults, result4};
constexpr Axis kResult3 = {6, kThreeResults, result3};
constexpr Axis kResult2 = {4, kTwoResults, result2};
constexpr Axis kFilter4 = {3, kSixSlots, filter4};
constexpr Axis kFilter2 = {3, kFourSlots, filter2};
constexpr Axis kFilterGradient4 = {6, kThreeResults, filter_gradient4};
constexpr Axis kFilterGradient2 = {4, kThreeResults, filter_gradient2};

}  // namespace

const Axis& axis_of(TileKind kind, int tile) {
    switch (kind) {
        case TileKind::input: return tile == 2 ? kInput2 : tile == 3 ? kInput3 : kInput4;
        case TileKind::gradient:
            return tile == 2 ? kGradient2 : tile == 3 ? kGradient3 : kGradient4;
        case TileKind::result: return tile == 2 ? kResult2 : tile == 3 ? kResult3 : kResult4;
        case TileKind::filter_gradient: return tile == 2 ? kFilterGradient2 : kFilterGradient4;
        default: return tile == 2 ? kFilter2 : kFilter4;
    }
}

}  // namespace dlprim
