// Losses of single elements as programs: the value, its sum along a row, and the gradient with
// respect to x, whose factor is a tensor or one number. A factor of one number and the sum may come
// together, so that training reads its operands once.
#pragma once

#include <string>
#include <vector>

#include "jit/dtype.h"
#include "rows/row_builder.h"

namespace dlprim {

// A loss of x against the target y, and its slope with respect to x.
struct LossCurve {
    struct Arguments {
        RowValue x, y, weight, positive_weight;
    };
    std::string name;
    bool is_weighted = false;  // takes both weights, else none
    RowValue (*value)(const Arguments& at);
    RowValue (*slope)(const Arguments& at);
};

// Writes the program `name`: of a loss ("mse_loss", "bce_with_logits"); of what its two weights
// are, numbers, columns ("_columns"), tensors of float32 ("_tensors") or the first of them one and
// the second a column ("_tensor"); and of what is computed:
//
//     ""             x, y, weights; the value
//     "_sum"         x, y, weights; the value's sum for every row
//     "_backward"    dy, x, y, weights; dy times the slope
//     "_slope"       x, y, weights, a number; the number times the slope
//     "_with_slope"  the same operands; number times slope, and the value's sum for every row
//
// False where there is no such program.
bool write_loss_program(RowBuilder& row, const std::string& name, DType dtype);

std::vector<std::string> loss_program_names();

}  // namespace dlprim
