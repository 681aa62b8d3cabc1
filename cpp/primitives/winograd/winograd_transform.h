// The two-dimensional transforms of Winograd convolution: a patch of pixels (or a filter, or
// gradients) to one value per slot, and slots back to pixels, for one tile and a run of channels,
// vectors along the channels. Slot (i, j) is number i * slots_of(tile) + j. The code behind is
// Highway, compiled once per vector width as per_isa.h describes; the tables here choose it.
#pragma once

#include <cstdint>

#include "jit/dtype.h"
#include "jit/isa.h"

namespace dlprim {

// Most channels of one call, and how many the zeros for absent pixels stand for.
inline constexpr std::int64_t kWinogradChannels = 64;
// What vectors write beyond the channels stays within a multiple of this many floats.
inline constexpr std::int64_t kWinogradLanes = 16;

// Channels in whole vectors of any width.
constexpr std::int64_t whole_vectors(std::int64_t channels) {
    return (channels + kWinogradLanes - 1) / kWinogradLanes * kWinogradLanes;
}

// Points of one axis: 6 for tiles of 4 and 3, 4 for tiles of 2.
constexpr int slots_of(int tile) { return tile == 2 ? 4 : 6; }

enum class PatchKind : std::uint8_t {
    input,             // (tile + 2)^2 pixels
    gradient,          // tile^2 pixels
    filter,            // 3 x 3 taps
    even_pair_filter,  // the same in pairs of bfloat16 (VNNI): the first of each,
    odd_pair_filter,   // or the second
};

// One tile to slots.
struct TilePatch {
    const void* first = nullptr;  // pixel (0, 0); may lie outside of the tensor
    std::int64_t row = 0;         // elements from row to row, and from pixel to pixel
    std::int64_t pixel = 0;
    // Pixels [rows_begin, rows_end) x [columns_begin, columns_end) exist, the others are zeros.
    int rows_begin = 0;
    int rows_end = 0;
    int columns_begin = 0;
    int columns_end = 0;
    std::int64_t channels = 0;  // at most kWinogradChannels
    float* slots = nullptr;     // written in whole vectors, of kWinogradLanes channels at most
    std::int64_t slot_stride = 0;
};

using ExpandFunction = void (*)(const TilePatch&);

// `tile` of a filter is 4 (which serves 3 too) or 2. `inside`: all pixels exist.
ExpandFunction expand_function(Isa isa, PatchKind kind, DType dtype, int tile_h, int tile_w,
                               bool inside);

// Slots of one tile to results.
struct TileResult {
    const float* slots = nullptr;
    std::int64_t slot_stride = 0;
    void* first = nullptr;  // result (0, 0)
    std::int64_t row = 0;   // elements
    std::int64_t pixel = 0;
    int rows = 0;  // that exist, from the first on
    int columns = 0;
    std::int64_t channels = 0;
    const float* bias = nullptr;     // or null; as many as channels
    const void* residual = nullptr;  // or null; at result (0, 0), where results are in theirs
    bool relu = false;
};

using ReduceFunction = void (*)(const TileResult&);

// Results of type `dtype`: tile_h x tile_w of them.
ReduceFunction reduce_function(Isa isa, DType dtype, int tile_h, int tile_w);
// The gradient of a filter, 3 x 3 taps of float32; `tile` is 4 or 2.
ReduceFunction filter_gradient_function(Isa isa, int tile);

}  // namespace dlprim
