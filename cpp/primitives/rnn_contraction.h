// The products of a recurrent primitive as descriptions for the one driver (contraction.h). Those
// that depend on nothing but finished tensors run over all rows; the two that make a step wait for
// the one before it leave their block in a tile, where the gates find it hot (rnn_step.h).
#pragma once

#include "primitives/contraction.h"
#include "primitives/rnn_shape.h"

namespace dlprim {

// gates(row, gate, k) = src * w_ih + bias for `rows` rows; loops g, k, n rows, c.
Contraction projection_contraction(const RnnShape& shape, std::int64_t rows);

// tile(gate, row, k) = hidden * w_hh of one step; loops n, k, g and the sum c. A block of the
// result is the tile of `block_rows` rows of whoever runs the body: the result moves with g only.
Contraction recurrence_contraction(const RnnShape& shape, std::int64_t block_rows);

// tile(row, k) = deltas * w_hh transposed of one step; loops n, k and the sum s over slots and
// panels.
Contraction diff_recurrence_contraction(const RnnShape& shape);

// diff_src = deltas * w_ih transposed; loops n rows, c and the sum s.
Contraction diff_src_contraction(const RnnShape& shape);

// The gradient of one gate's (K, channels) weights; `input` is what the weights are multiplied
// with, src or the hidden state, in panels of `input_rows` rows. Loops k, c and the sum r over
// rows.
Contraction diff_weights_contraction(const RnnShape& shape, const Panels& input,
                                     std::int64_t input_rows);

// Rows as the operands of diff_weights_contraction have them: in bfloat16 whole pairs.
std::int64_t summed_rows(const RnnShape& shape);

}  // namespace dlprim
