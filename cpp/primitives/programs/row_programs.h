// Layers that are row programs: softmax and its kin, normalisation along rows, activations, losses
// and their gradients. A family gives its programs by name. What operands a program has is said
// beside it, in their order; results stand behind what is read, and numbers such as eps are
// scalars, so that a program serves all of them.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "jit/dtype.h"
#include "rows/row_builder.h"

namespace dlprim {

// The program of that name for tensors of that type; columns and single values are float32.
// Throws std::invalid_argument that lists the names.
RowSpec row_program(const std::string& name, DType dtype);

std::vector<std::string> row_program_names();

// Each writes its program for tensors of the type.
using RowFamily = std::map<std::string, std::function<void(RowBuilder&, DType)>>;

RowFamily activation_programs();
RowFamily gradient_programs();
RowFamily loss_programs();
RowFamily norm_programs();
RowFamily prelu_programs();
RowFamily quantization_programs();
RowFamily reduction_programs();
RowFamily softmax_programs();

}  // namespace dlprim
