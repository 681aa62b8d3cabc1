// What the two descriptions of the backward-weights pass share, on operands in place
// (conv_weights_contraction.cpp) and on packed pairs of pixels (conv_paired_contraction.cpp).
#pragma once

#include <cstdint>
#include <vector>

#include "primitives/conv/conv_contraction.h"

namespace dlprim {

// Where the operands of the pass are, in bytes.
struct WeightsPassStrides {
    ActivationStrides a;
    ActivationStrides b;
    std::int64_t tap = 0;  // of C
};

// Bytes of the first pixels of a term from the beginning of their rows.
struct RowOffsets {
    std::int64_t a = 0;
    std::int64_t b = 0;
};

// Whether all taps of a filter row are multiplied at once, as windows of S * C neighbours.
bool has_windows(const ConvShape& shape);

// Everything but the classes: loops g, k, c, t, n, p.
Contraction weights_pass_frame(DType dtype, const ConvShape& shape,
                               const WeightsPassStrides& strides, std::int64_t images);

// An entry of `term` for every p whose row of src through filter row r exists.
void add_row_entries(const ConvShape& shape, std::int64_t r, const WeightsPassStrides& strides,
                     const RowOffsets& offsets, Term& term);

// The terms of the next index of loop t.
void add_weights_class(Contraction& contraction, std::vector<Term> terms);

}  // namespace dlprim
