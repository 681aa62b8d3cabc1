// Layers that are row programs: softmax and its kin, normalisation along rows, activations, losses
// and their gradients. Each is a few lines, in which operands are named in the order of the
// arguments, results behind them. Numbers such as eps are scalars, so that a program serves all of
// them.
#pragma once

#include <string>
#include <vector>

#include "jit/dtype.h"
#include "rows/row_spec.h"

namespace dlprim {

// The program of that name for tensors of that type; columns and single values are float32.
// Throws std::invalid_argument that lists the names.
RowSpec row_program(const std::string& name, DType dtype);

std::vector<std::string> row_program_names();

}  // namespace dlprim
