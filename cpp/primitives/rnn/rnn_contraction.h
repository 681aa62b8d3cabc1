// The products of a recurrent primitive as descriptions for the one driver (contraction.h). Those
// that depend on nothing but finished tensors run over many rows; the two that make a step wait for
// the one before it leave a block at a time where the gates find it hot (rnn_steps.h).
#pragma once

#include "primitives/nest/contraction.h"
#include "primitives/rnn/rnn_shape.h"

namespace dlprim {

// sums(row, gate, k) = src * w_ih + bias for `rows` rows; loops n rows, k, g and the sum c. Sums
// are [panel][slot][row][width] with room for `sum_rows` rows: contiguous wherever a block begins,
// and padding of the last panel is not written.
Contraction projection_contraction(const RnnShape& shape, std::int64_t rows, std::int64_t sum_rows);

// sums(row, gate, k) += hidden * w_hh of one step; the same loops. (n of a GRU is not added to but
// kept apart: the caller asks for that.)
Contraction recurrence_contraction(const RnnShape& shape, std::int64_t sum_rows);

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
