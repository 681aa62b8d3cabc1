#include "primitives/programs/gradient_programs.h"

namespace dlprim {

void square_sum(RowBuilder& row, DType dtype) {
    const RowValue x = row.tensor(dtype);
    row.store_per_row(sum(x * x));
}

void scaled(RowBuilder& row, DType dtype) {
    const RowValue x = row.tensor(dtype), factor = row.scalar();
    row.store(dtype, x * factor);
}

void limited(RowBuilder& row, DType dtype) {
    const RowValue x = row.tensor(dtype), most = row.scalar();
    row.store(dtype, smaller(most, larger(-most, x)));
}

}  // namespace dlprim
