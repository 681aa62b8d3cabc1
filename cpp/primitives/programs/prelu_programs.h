// PReLU, a leaky relu whose slope is trained: one of each row, or one of each column. NaN is
// multiplied as a negative number is, as PyTorch does.
#pragma once

#include "jit/dtype.h"
#include "rows/row_builder.h"

namespace dlprim {

// x, per row a slope; y.
void write_prelu_of_rows(RowBuilder& row, DType dtype);

// dy, x, per row a slope; dx, per row the gradient of the slope.
void write_prelu_of_rows_backward(RowBuilder& row, DType dtype);

// The same with columns, to which their gradient is added.
void write_prelu_of_columns(RowBuilder& row, DType dtype);
void write_prelu_of_columns_backward(RowBuilder& row, DType dtype);

}  // namespace dlprim
