// Whether a chain of steps on rows runs for a piece of the rows at a time, and one on images for a
// few of these, from arithmetic on bytes alone. What lies between the steps then does not leave the
// second cache, or of images the third, and threads meet once; but each piece reads all weights,
// which have to be in the third cache for that.
#pragma once

#include <cstdint>
#include <vector>

#include "jit/dtype.h"
#include "jit/machine.h"

namespace dlprim {

struct RowChain {
    std::int64_t rows = 0;
    DType dtype = DType::f32;            // of the products
    double flops = 0;                    // of a row
    double weights = 0;                  // bytes, of all steps
    std::vector<double> row_bytes = {};  // of what each step reads and, last, of the result
};

// Cycles of one core that pieces of so many rows save; below 0 they cost.
double cycles_saved(const RowChain& chain, std::int64_t rows, const Machine& machine);

// Rows of a piece, 0 where pieces do not pay. No matter how many threads there are, so that
// results do not depend on them.
std::int64_t rows_of_piece(const RowChain& chain, const Machine& machine);

// Of an image. Only what `ends` says of a step makes everything that is read behind it.
struct ImageStep {
    double weights = 0;  // bytes, of all images
    double read = 0;     // bytes
    double written = 0;
    bool ends = false;
};

// The first steps of a chain, as many as run in pieces, and images of a piece; 0 where none do.
struct ImagePieces {
    std::int64_t steps = 0;
    std::int64_t images = 0;

    friend bool operator==(const ImagePieces&, const ImagePieces&) = default;
};

ImagePieces image_pieces(std::int64_t images, const std::vector<ImageStep>& steps,
                         const Machine& machine);

}  // namespace dlprim
