// The transforms of Winograd convolution as row programs: a tile of pixels (or a filter, or
// gradients) to one value per slot, and slots back to pixels. A row is a tile and its columns are
// channels, so that a call transforms a run of tiles at equal distances. Which of a tile's pixels
// exist is part of the program: at the rim of an image programs read and compute less. So is what
// lies how far from its first pixel, but for rows of images, each of which is an operand: programs
// serve images of any width.
//
// A tile of M results of a filter of 3 taps needs, along an axis, M + 2 inputs and as many
// products, one per interpolation point ("slot"). Tiles of 4 use the points 0, +-a, +-b, infinity
// with a = sqrt(1/2), b = sqrt(2): the products of their squares are small, so float32 loses
// little. Tiles of 3 leave out -b and so share the transformed filter. Tiles of 2 use 0, 1, -1,
// infinity and a filter of their own. All normalisation is in the filter's transform. Derivation:
// docs/lab/2026-11-29-inside.md; tests/winograd_exact.py checks every constant in exact arithmetic.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "jit/dtype.h"
#include "primitives/tensor/partition.h"
#include "rows/row_builder.h"
#include "rows/row_kernel.h"

namespace dlprim {

inline constexpr std::int64_t kWinogradTaps = 3;  // of a filter, along an axis
// Channels of products are a multiple of this many.
inline constexpr std::int64_t kWinogradLanes = 16;

constexpr std::int64_t whole_vectors(std::int64_t channels) {
    return rounded_up(channels, kWinogradLanes);
}

// Points of one axis: 6 for tiles of 4 and 3, 4 for tiles of 2. Slot (i, j) is number
// i * slots_of(tile) + j.
constexpr int slots_of(int tile) { return tile == 2 ? 4 : 6; }

enum class TileKind : std::uint8_t {
    input,             // (tile + 2)^2 pixels to slots
    gradient,          // tile^2 pixels to slots
    filter,            // 3 x 3 taps to slots
    even_pair_filter,  // the same in pairs of bfloat16 (VNNI): the first of each,
    odd_pair_filter,   // or the second
    result,            // slots to tile^2 pixels
    filter_gradient,   // slots to 3 x 3 taps of float32
};

struct TileTransform {
    TileKind kind = TileKind::input;
    DType dtype = DType::f32;  // of pixels
    // Of filters 4, which serves 3 too, or 2.
    int tile_h = 4;
    int tile_w = 4;
    // Pixels, or taps, that exist: others are read as zeros and not written. Results begin with 0.
    Range rows = {0, kWinogradTaps};
    Range columns = {0, kWinogradTaps};
    // Elements from row to row of pixels, 0 where each row is an operand, and from pixel to pixel.
    std::int64_t row = 0;
    std::int64_t pixel = 0;
    std::int64_t slot_stride = 0;  // floats
    // Of results: added before they are stored, from where results are in theirs.
    bool residual = false;
    bool relu = false;

    friend bool operator==(const TileTransform&, const TileTransform&) = default;
};

// Operands: pixels, at pixel (0, 0), which may lie outside of the tensor, and slots; or slots, the
// residual where there is one, the bias of results, whose rows are all the same, and pixels. Where
// rows are operands, pixels and residual are those rows that exist, each at pixel 0.
RowSpec tile_program(const TileTransform& it);

// That program as code, as KnownPrograms finds it.
std::shared_ptr<const RowKernel> tile_kernel(const TileTransform& it);

// ---------------------------------------------------------------- one axis (winograd_axis.cpp)

inline constexpr int kMostOnAxis = 6;  // pixels or slots
inline constexpr int kNone = -1;

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

struct TileAxis {
    int operands;
    std::span<const GivenPlaces> passes;
    Given (*apply)(int pass, const AxisValues& of);
};

const TileAxis& axis_of(TileKind kind, int tile);

}  // namespace dlprim
