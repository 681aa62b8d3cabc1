// What other programs need of activations as programs on single elements.
#pragma once

#include "jit/activation.h"
#include "rows/row_builder.h"

namespace dlprim {

// The slope of one that kernels apply: of gelu, gelu_tanh, swish and hardswish from the argument,
// because their results do not tell, of the others from the result.
RowValue slope_of(Activation activation, RowValue saved, RowBuilder& row);

// log(1 + e) without cancellation, of an e of at most 1.
RowValue log_one_more(RowValue e);

// e^x - 1 without cancellation.
RowValue exp_less_one(RowValue x);

// log(1 + e^x).
RowValue soft_positive(RowValue x);

// `then` where x is above 0, or NaN.
RowValue positive(RowValue x, RowValue then, RowValue otherwise);

// NaN stays.
RowValue between(RowValue x, float least, float most);

}  // namespace dlprim
