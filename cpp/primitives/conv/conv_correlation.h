// Forward and backward-data as one thing: an input is read through taps, an output is written. The
// two differ in which channels are which and in the taps (conv_taps.h).
#pragma once

#include <cstdint>

#include "primitives/conv/conv_contraction.h"
#include "primitives/nest/contraction.h"

namespace dlprim {

struct Correlation {
    std::int64_t images;
    ChannelBlocks in;
    ChannelBlocks out;
    Axis rows;
    Axis pixels;
    std::int64_t filter_height;
    std::int64_t filter_width;
    DType dtype;
    Format layout;
    char in_letter;
    char out_letter;
    // Pixels of C that a row and a pixel of the result stand for; what else is in them is zero.
    std::int64_t cell_height = 1;
    std::int64_t cell_width = 1;

    // Weights in the form of joined_weights.h instead of the packed one.
    bool joined_weights = false;

    bool has_cells() const { return cell_height * cell_width > 1; }
};

// Loops: g, n, blocks of `out`, blocks of `in`, p rows and, where rows can be cut anywhere, q
// pixels.
Contraction contraction_of(const Correlation& correlation, const Epilogue& epilogue, double flops);

}  // namespace dlprim
