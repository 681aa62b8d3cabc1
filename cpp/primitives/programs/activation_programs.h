// Activations as programs on single elements, with their gradients: what stands between products
// where no kernel's epilogue takes it along.
#pragma once

#include <string>
#include <vector>

#include "jit/activation.h"
#include "jit/dtype.h"
#include "rows/row_builder.h"

namespace dlprim {

// A value's activation, and the slope of that. Curves with numbers of their own (leaky_relu's
// slope, elu's alpha, softplus's beta) take them as scalar operands behind the tensors.
struct ActivationCurve {
    std::string name;
    RowValue (*value)(RowValue x, RowBuilder& row);
    RowValue (*slope)(RowValue x, RowBuilder& row);
};

// The slope of one that kernels apply: of sigmoid and tanh from the result, of the others from the
// argument, because their results do not tell.
RowValue slope_of(Activation activation, RowValue saved, RowBuilder& row);

// Writes the program `name`, or `name` without "_backward" as a gradient: operands x, or dy and x;
// a result. False where there is no such activation.
bool write_activation_program(RowBuilder& row, const std::string& name, DType dtype);

// log(1 + e) without cancellation, of an e of at most 1.
RowValue log_one_more(RowValue e);

std::vector<std::string> activation_program_names();

}  // namespace dlprim
