#include "primitives/programs/prelu_programs.h"

namespace dlprim {
namespace {

RowValue value(RowValue x, RowValue slope) { return select(0.0F < x, x, x * slope); }

RowValue slope_at(RowValue dy, RowValue x, RowValue slope) {
    return select(0.0F < x, dy, dy * slope);
}

RowValue share_of_slope(RowValue dy, RowValue x) { return select(0.0F < x, 0.0F, dy * x); }

}  // namespace

void write_prelu_of_rows(RowBuilder& row, DType dtype) {
    const RowValue x = row.tensor(dtype), slope = row.per_row();
    row.store(dtype, value(x, slope));
}

void write_prelu_of_rows_backward(RowBuilder& row, DType dtype) {
    const RowValue dy = row.tensor(dtype), x = row.tensor(dtype), slope = row.per_row();
    row.store(dtype, slope_at(dy, x, slope));
    row.store_per_row(sum(share_of_slope(dy, x)));
}

void write_prelu_of_columns(RowBuilder& row, DType dtype) {
    const RowValue x = row.tensor(dtype), slope = row.column();
    row.store(dtype, value(x, slope));
}

void write_prelu_of_columns_backward(RowBuilder& row, DType dtype) {
    const RowValue dy = row.tensor(dtype), x = row.tensor(dtype), slope = row.column();
    row.store(dtype, slope_at(dy, x, slope));
    row.add_to_column(share_of_slope(dy, x));
}

}  // namespace dlprim
