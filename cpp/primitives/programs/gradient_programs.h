// What is done to gradients between the backward pass and the optimiser's step, as programs on
// elements in a row: their norm, and a limit on it or on each of them.
#pragma once

#include "jit/dtype.h"
#include "rows/row_builder.h"

namespace dlprim {

// The sum of squares of every row.
void square_sum(RowBuilder& row, DType dtype);

// x times a number.
void scaled(RowBuilder& row, DType dtype);

// x, no further from 0 than a number, which is not negative. NaN stays: where one operand of a
// comparison is NaN, the second is taken.
void limited(RowBuilder& row, DType dtype);

}  // namespace dlprim
