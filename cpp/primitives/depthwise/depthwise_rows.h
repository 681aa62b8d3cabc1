// The vector code behind depthwise.h: rows of pixels, vectors along the channels. Written in
// Highway and compiled once per vector width as per_isa.h describes. Filter rows outside the
// image are the caller's to leave out, columns outside are left out here: nothing is ever
// multiplied by padding. Every sum is one chain of multiply-adds in an order that the geometry
// fixes, so neither the layout nor how channels are cut into vectors shows in the bits.
#pragma once

#include <cstdint>

#include "jit/dtype.h"
#include "jit/isa.h"
#include "primitives/tensor/partition.h"

namespace dlprim {

// One row of results: dst[j] = act(bias + sum of src[column + j * step + t * spread] *
// weights[first_tap + t * tap_distance] + residual[j]) over the filter's rows and its taps t.
// Columns and results are pixels, distances are in elements.
struct RowConvolution {
    // The first row of the filter and the row of src under it, at the first channel: column 0 of
    // src, the first tap of the weights. The others follow at equal distances.
    const void* src = nullptr;
    const void* weights = nullptr;
    std::int64_t src_row = 0;
    std::int64_t weights_row = 0;
    std::int64_t row_count = 0;
    bool fetches = false;
    // The last so many rows are read here for the first time. What a later row of results will read
    // for the first time is at this distance and is prefetched, and so is where it goes.
    std::int64_t fresh_rows = 0;
    std::int64_t src_ahead = 0;
    std::int64_t dst_ahead = 0;
    std::int64_t taps = 0;          // of a row
    std::int64_t first_tap = 0;     // distance of its weights
    std::int64_t tap_distance = 0;  // between the weights of neighbouring taps; may be negative
    std::int64_t spread = 1;        // columns from tap to tap
    std::int64_t step = 1;          // columns from result to result
    std::int64_t column = 0;        // under the first tap of the first result; may be negative
    std::int64_t width = 0;         // columns of src
    std::int64_t src_distance = 0;  // between neighbouring columns
    std::int64_t dst_distance = 0;  // between neighbouring results, also those of residual
    std::int64_t results = 0;
    std::int64_t channels = 0;
    const float* bias = nullptr;     // or null
    const void* residual = nullptr;  // or null
    bool relu = false;
    void* dst = nullptr;
};

// One axis of a convolution.
struct DepthwiseAxis {
    std::int64_t taps = 0;
    std::int64_t step = 1;    // stride
    std::int64_t spread = 1;  // dilation
    std::int64_t before = 0;  // padding
    std::int64_t extent = 0;  // of src
    std::int64_t results = 0;

    // In src; outside of it where there is padding.
    std::int64_t position(std::int64_t result, std::int64_t tap) const {
        return result * step + tap * spread - before;
    }
};

// No vector has more channels.
inline constexpr std::int64_t kMostChannels = 32;
// Filter rows whose gradients are summed together.
inline constexpr std::int64_t kSummedRows = 3;

// Adds to sums[r][s][channel] what rows `rows` of diff_dst of one image contribute to the gradient
// of the weights. src and diff_dst are at the image's first pixel; distances are in elements.
struct RowsCorrelation {
    DepthwiseAxis vertical;
    DepthwiseAxis horizontal;
    Range rows;
    std::int64_t rows_ahead = 0;  // of diff_dst, to prefetch; 0 for none
    const void* src = nullptr;
    std::int64_t src_row = 0;
    std::int64_t src_distance = 0;
    const void* diff_dst = nullptr;
    std::int64_t dst_row = 0;
    std::int64_t dst_distance = 0;
    std::int64_t channels = 0;
    // With room for whole vectors, and for filter rows up to a multiple of kSummedRows.
    float* sums = nullptr;
    std::int64_t sums_distance = 0;  // from tap to tap, a multiple of kMostChannels
};

using ConvolveRow = void (*)(const RowConvolution&);
using CorrelateRows = void (*)(const RowsCorrelation&);

// For an ISA level that this machine can run; f32 or bf16.
ConvolveRow convolve_row_function(Isa isa, DType dtype);
CorrelateRows correlate_rows_function(Isa isa, DType dtype);

}  // namespace dlprim
