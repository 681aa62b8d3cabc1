// Normalisation as programs: of channels and groups of them, whose weight and bias are single
// values of a row, and of a sum that the same pass makes. Operands stand behind each in their
// order.
#pragma once

#include "jit/dtype.h"
#include "rows/row_builder.h"

namespace dlprim {

// The reciprocal of the length is one number for all rows.
inline RowValue mean(RowBuilder& row, RowValue x) { return sum(x) * (1.0F / row.columns()); }

// In two passes, as the mean may be far from 0.
struct Standardized {
    Standardized(RowBuilder& row, RowValue x, RowValue eps)
        : middle(mean(row, x)),
          centred(x - middle),
          scale(1.0F / sqrt(mean(row, centred * centred) + eps)) {}

    RowValue middle;
    RowValue centred;
    RowValue scale;
};

// Of rows that are groups: x, eps; per row the mean and 1 / sqrt(var + eps).
void write_row_moments(RowBuilder& row, DType dtype);

// Of rows that are channels: x, per row a mean, a scale and a bias; (x - mean) scale + bias.
void write_channel_affine(RowBuilder& row, DType dtype);

// Of rows that are channels: dy, x, per row a mean; per row sum(dy) and sum(dy (x - mean)).
void write_channel_sums(RowBuilder& row, DType dtype);

// Of rows that are channels: dy, x, per row a mean and three numbers; dy a + (x - mean) b + c.
void write_channel_slope(RowBuilder& row, DType dtype);

// Groups of one channel. x, per row weight and bias, eps; y.
void write_instance_norm(RowBuilder& row, DType dtype);

// dy, x, per row a weight, eps; dx, per row the gradients of weight and bias.
void write_instance_norm_backward(RowBuilder& row, DType dtype);

// x, residual, columns weight and bias, eps; x + residual, and its layer normalisation.
void write_add_layer_norm(RowBuilder& row, DType dtype);

// dy, the gradient of the sum, the sum, a column weight, eps; dx, sums of columns of weight, bias.
void write_add_layer_norm_backward(RowBuilder& row, DType dtype);

// As the two above, without a mean and a bias.
void write_add_rms_norm(RowBuilder& row, DType dtype);
void write_add_rms_norm_backward(RowBuilder& row, DType dtype);

}  // namespace dlprim
