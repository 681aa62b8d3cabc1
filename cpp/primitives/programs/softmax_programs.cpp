// Softmax and its logarithm along the row: x; y. Gradients: dy, y; dx.
#include "primitives/programs/row_programs.h"

namespace dlprim {
namespace {

void softmax(RowBuilder& row, DType dtype) {
    const RowValue x = row.tensor(dtype);
    const RowValue power = exp(x - highest(x));
    row.store(dtype, power * (1.0F / sum(power)));
}

// dx = y (dy - sum(dy y)).
void softmax_backward(RowBuilder& row, DType dtype) {
    const RowValue dy = row.tensor(dtype), y = row.tensor(dtype);
    row.store(dtype, y * (dy - sum(dy * y)));
}

void log_softmax(RowBuilder& row, DType dtype) {
    const RowValue x = row.tensor(dtype);
    const RowValue above = highest(x);
    row.store(dtype, (x - above) - log(sum(exp(x - above))));
}

// dx = dy - exp(y) sum(dy).
void log_softmax_backward(RowBuilder& row, DType dtype) {
    const RowValue dy = row.tensor(dtype), y = row.tensor(dtype);
    row.store(dtype, dy - exp(y) * sum(dy));
}

}  // namespace

RowFamily softmax_programs() {
    return {{"softmax", softmax},
            {"softmax_backward", softmax_backward},
            {"log_softmax", log_softmax},
            {"log_softmax_backward", log_softmax_backward}};
}

}  // namespace dlprim
