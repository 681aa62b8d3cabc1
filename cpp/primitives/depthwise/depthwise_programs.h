// Rows of pixels as row programs (docs/rows.md): neighbouring results of a row, a tile, are one row
// of a program, channels are its elements, and a column of what is read is loaded once for all
// results that it is part of. What lies outside the image is left out when a program is written:
// nothing is ever multiplied by padding, and every sum is one chain of multiply-adds in an order
// that the geometry fixes, so that neither the layout nor the tiles show in the bits.
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

#include "jit/activation.h"
#include "jit/dtype.h"
#include "primitives/tensor/partition.h"
#include "rows/row_spec.h"

namespace dlprim {

// A tile and what it sees through taps of one row of the filter. Columns count from the one under
// the first tap of the first result.
struct DepthwiseTile {
    std::int64_t results = 1;
    std::int64_t step = 1;  // columns from result to result
    std::int64_t taps = 0;
    std::int64_t spread = 1;  // columns from tap to tap
    Range columns;            // that exist

    friend bool operator==(const DepthwiseTile&, const DepthwiseTile&) = default;
};

// Bytes between neighbours; rows are those of the filter.
struct DepthwiseDistances {
    std::int64_t src_row = 0;
    std::int64_t src_pixel = 0;
    std::int64_t weights_row = 0;  // also of float32 sums of their gradients, and the next one
    std::int64_t weights_tap = 0;
    std::int64_t dst_pixel = 0;
    std::int64_t sums_pixel = 0;
    std::int64_t mask_pixel = 0;
    // Rows of src behind those of the filter that are fetched for the next row of results.
    std::int64_t fetched_rows = 0;
    std::int64_t fetched_row = 0;
};

// Where the filter has more rows than a program, float32 sums go from one to the next.
struct DepthwiseSums {
    std::int64_t rows = 0;  // of the filter
    bool begin = true;      // with the bias, where there is one; else with those that are there
    bool end = true;        // with what follows them

    auto operator<=>(const DepthwiseSums&) const = default;
};

struct DepthwiseEpilogue {
    bool bias = false;
    bool residual = false;
    bool relu_mask = false;
    Activation activation = Activation::none;
    // Of 8-bit operands: sums begin with a bias that are floats of integers and are multiplied by a
    // scale before `bias` is added. They are exact below 2^24.
    bool quantized = false;
    DType dst = DType::f32;  // then
    // Of an 8-bit dst: whether the range is narrower than the type's, and the zero point is not 0.
    bool is_bounded = true;
    bool is_shifted = true;

    bool begins_with_bias() const { return bias || quantized; }
};

// Operands: src, weights, bias or sums, residual, dst or sums, mask. Quantised: src, weights, bias
// of integers or sums, scale, bias, residual with its scale, lowest and highest of a bounded and
// the zero point of a shifted 8-bit dst, dst or sums.
RowSpec convolution_program(DType dtype, const DepthwiseTile& tile, const DepthwiseSums& sums,
                            const DepthwiseDistances& apart, const DepthwiseEpilogue& epilogue);

// Operands: src, diff_dst, and sums for the taps, to which products are added.
RowSpec correlation_program(DType dtype, const DepthwiseTile& tile, std::int64_t rows,
                            const DepthwiseDistances& apart);

// Tiles of one form that follow each other in a row, from the result `first` on. A call goes
// through them, or, where there is a single one, through rows of results.
struct DepthwiseRun {
    std::int64_t first = 0;
    std::int64_t count = 1;
    DepthwiseTile tile;

    // Rows of a program, and bytes from one to the next: pixels of the results are `pixel` apart.
    std::int64_t calls(std::int64_t rows) const { return count > 1 ? count : rows; }
    std::int64_t stride(std::int64_t pixel, std::int64_t row) const {
        return count > 1 ? tile.results * pixel : row;
    }
};

// A row of results, given as one tile, in tiles of at most `together`.
std::vector<DepthwiseRun> runs_of(const DepthwiseTile& row, std::int64_t together);

// Results of a tile, so that their sums, weights and a column have registers.
std::int64_t convolved_together(const DepthwiseTile& row);
// The same, and taps of a row of the filter, of which three have sums.
struct Correlated {
    std::int64_t results;
    std::int64_t taps;
};
Correlated correlated_together();

}  // namespace dlprim
