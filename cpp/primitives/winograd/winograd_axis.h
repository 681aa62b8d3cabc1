// The one-dimensional transforms of Winograd convolution as formulas on values of row programs. A
// tile of M results of a filter of 3 taps needs M + 2 inputs and as many products, one per
// interpolation point ("slot"). Tiles of 4 use the points 0, +-a, +-b, infinity with a = sqrt(1/2),
// b = sqrt(2): the products of their squares are small, so float32 loses little. Tiles of 3 leave
// out -b and so share the transformed filter. Tiles of 2 use 0, 1, -1, infinity and a filter of
// their own. All normalisation is in the filter's transform.
// Derivation: docs/winograd.md; tests/winograd_exact.py checks every constant in exact arithmetic.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "rows/row_builder.h"

namespace dlprim {

// Points of one axis: 6 for tiles of 4 and 3, 4 for tiles of 2.
constexpr int slots_of(int tile) { return tile == 2 ? 4 : 6; }
inline constexpr int kMostOnAxis = 6;  // pixels or slots
inline constexpr int kNone = -1;

enum class TileKind : std::uint8_t {
    input,             // (tile + 2)^2 pixels to slots
    gradient,          // tile^2 pixels to slots
    filter,            // 3 x 3 taps to slots
    even_pair_filter,  // the same in pairs of bfloat16 (VNNI): the first of each,
    odd_pair_filter,   // or the second
    result,            // slots to tile^2 pixels
    filter_gradient,   // slots to 3 x 3 taps of float32
};

// Of what a program reads, or makes of it; without one, 0.
using AxisValue = std::optional<RowValue>;
using AxisValues = std::array<AxisValue, kMostOnAxis>;

// What a pass gives, one or two values, so that a two-dimensional transform can hold their rows in
// registers; and which slots, or results, these are.
struct Given {
    AxisValue first;
    AxisValue second;
};
struct GivenPlaces {
    int first;
    int second;
};

struct Axis {
    int operands;
    std::span<const GivenPlaces> passes;
    Given (*apply)(int pass, const AxisValues& of);
};

// Of a filter the tile is 4, which serves 3 too, or 2.
const Axis& axis_of(TileKind kind, int tile);

}  // namespace dlprim
