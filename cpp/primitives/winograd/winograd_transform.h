// The two-dimensional transforms of Winograd convolution: a tile of pixels (or a filter, or
// gradients) to one value per slot, and slots back to pixels, for one tile and a run of channels,
// vectors along the channels. Slot (i, j) is number i * slots_of(tile) + j. The code behind is
// Highway, compiled once per vector width as per_isa.h describes; the tables here choose it.
#pragma once

#include <cstdint>

#include "jit/dtype.h"
#include "jit/isa.h"
#include "primitives/tensor/partition.h"

namespace dlprim {

inline constexpr std::int64_t kWinogradTaps = 3;  // of a filter, along an axis
// Most channels of one call, and how many the zeros for absent pixels stand for.
inline constexpr std::int64_t kWinogradChannels = 64;
// What vectors write beyond the channels stays within a multiple of this many floats.
inline constexpr std::int64_t kWinogradLanes = 16;

// Channels in whole vectors of any width.
constexpr std::int64_t whole_vectors(std::int64_t channels) {
    return rounded_up(channels, kWinogradLanes);
}

// Points of one axis: 6 for tiles of 4 and 3, 4 for tiles of 2.
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

// One tile, pixels to slots or slots to pixels.
struct TileTransform {
    // Slots, or pixel (0, 0), which may lie outside of the tensor. Slots are written in whole
    // vectors, of kWinogradLanes channels at most.
    const void* src = nullptr;
    void* dst = nullptr;
    std::int64_t row = 0;  // elements from row to row of pixels, and from pixel to pixel
    std::int64_t pixel = 0;
    // Pixels that exist: others are read as zeros and not written. Results begin with 0.
    Range rows = {};
    Range columns = {};
    std::int64_t channels = 0;     // at most kWinogradChannels
    std::int64_t slot_stride = 0;  // floats
    // Of results.
    const float* bias = nullptr;     // or null; as many as channels
    const void* residual = nullptr;  // or null; at result (0, 0), where results are in theirs
    bool relu = false;
};

using TileFunction = void (*)(const TileTransform&);

// For an ISA level that this machine can run; pixels of type `dtype`. The tile of a filter is 4
// (which serves 3 too) or 2. `inside`: all pixels exist.
TileFunction tile_function(Isa isa, TileKind kind, DType dtype, int tile_h, int tile_w,
                           bool inside);

}  // namespace dlprim
