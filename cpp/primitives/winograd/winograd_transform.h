// The two-dimensional transforms of Winograd convolution as row programs: a tile of pixels (or a
// filter, or gradients) to one value per slot, and slots back to pixels. A row is a tile and its
// columns are channels, so that a call transforms a run of tiles at equal distances. What lies how
// far from a tile's first pixel is part of the program, and so is which of its pixels exist: at the
// rim of an image programs read and compute less. Slot (i, j) is number i * slots_of(tile) + j.
#pragma once

#include <cstdint>

#include "jit/dtype.h"
#include "primitives/tensor/partition.h"
#include "primitives/winograd/winograd_axis.h"
#include "rows/row_spec.h"

namespace dlprim {

inline constexpr std::int64_t kWinogradTaps = 3;  // of a filter, along an axis
// Channels of products are a multiple of this many.
inline constexpr std::int64_t kWinogradLanes = 16;

constexpr std::int64_t whole_vectors(std::int64_t channels) {
    return rounded_up(channels, kWinogradLanes);
}

struct TileTransform {
    TileKind kind = TileKind::input;
    DType dtype = DType::f32;  // of pixels
    int tile_h = 4;
    int tile_w = 4;
    // Pixels that exist: others are read as zeros and not written. Results begin with 0.
    Range rows = {};
    Range columns = {};
    std::int64_t row = 0;  // elements from row to row of pixels, and from pixel to pixel
    std::int64_t pixel = 0;
    std::int64_t slot_stride = 0;  // floats
    // Of results: added before they are stored, from where results are in theirs.
    bool residual = false;
    bool relu = false;
};

// Operands: pixels, at pixel (0, 0), which may lie outside of the tensor, and slots; or slots, the
// residual where there is one, the bias of results, whose rows are all the same, and pixels.
RowSpec tile_program(const TileTransform& it);

}  // namespace dlprim
