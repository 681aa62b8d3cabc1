// Sums and extremes of rows, of columns, and of tensors element by element. A NaN makes an extreme
// NaN; where it lies is the place of one.
#pragma once

#include "jit/dtype.h"
#include "rows/row_builder.h"

namespace dlprim {

// How many tensors a fold makes one of.
inline constexpr int kFoldedTensors = 8;

// Rows for which places are exact, in columns.
inline constexpr float kMostPlaces = 0x1p23F;

// x; per row its sum.
void write_sum_of_rows(RowBuilder& row, DType dtype);

// x; sums of columns.
void write_sum_of_columns(RowBuilder& row, DType dtype);

// x; per row its largest or smallest element.
void write_max_of_rows(RowBuilder& row, DType dtype);
void write_min_of_rows(RowBuilder& row, DType dtype);

// kFoldedTensors of them; the largest or smallest in each place.
void write_max_of_tensors(RowBuilder& row, DType dtype);
void write_min_of_tensors(RowBuilder& row, DType dtype);

// x, a column that counts up from 0; per row the place of the first such element.
void write_place_of_max(RowBuilder& row, DType dtype);
void write_place_of_min(RowBuilder& row, DType dtype);

}  // namespace dlprim
