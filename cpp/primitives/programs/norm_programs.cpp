#include "primitives/programs/norm_programs.h"

namespace dlprim {
namespace {

// dx = scale (g - mean(g) - h mean(g h)) of the slope g at the normalised h.
RowValue slope_of_standardized(RowBuilder& row, RowValue slope, const Standardized& it) {
    // A factor outside of the sum: it need not wait for the scale.
    const RowValue along = mean(row, slope * it.centred) * it.scale;
    return (slope - mean(row, slope) - it.centred * it.scale * along) * it.scale;
}

RowValue sum_of_two(RowBuilder& row, DType dtype) {
    const RowValue x = row.tensor(dtype), residual = row.tensor(dtype);
    return x + residual;
}

}  // namespace

void write_row_moments(RowBuilder& row, DType dtype) {
    const RowValue x = row.tensor(dtype);
    const Standardized it(row, x, row.scalar());
    row.store_per_row(it.middle);
    row.store_per_row(it.scale);
}

void write_channel_affine(RowBuilder& row, DType dtype) {
    const RowValue x = row.tensor(dtype), middle = row.per_row();
    const RowValue scale = row.per_row(), bias = row.per_row();
    row.store(dtype, multiply_add(x - middle, scale, bias));
}

void write_channel_sums(RowBuilder& row, DType dtype) {
    const RowValue dy = row.tensor(dtype), x = row.tensor(dtype), middle = row.per_row();
    row.store_per_row(sum(dy));
    row.store_per_row(sum(dy * (x - middle)));
}

void write_channel_slope(RowBuilder& row, DType dtype) {
    const RowValue dy = row.tensor(dtype), x = row.tensor(dtype), middle = row.per_row();
    const RowValue of_dy = row.per_row(), of_x = row.per_row(), constant = row.per_row();
    row.store(dtype, multiply_add(dy, of_dy, multiply_add(x - middle, of_x, constant)));
}

void write_instance_norm(RowBuilder& row, DType dtype) {
    const RowValue x = row.tensor(dtype), weight = row.per_row(), bias = row.per_row();
    const Standardized it(row, x, row.scalar());
    row.store(dtype, multiply_add(it.centred, it.scale * weight, bias));
}

void write_instance_norm_backward(RowBuilder& row, DType dtype) {
    const RowValue dy = row.tensor(dtype), x = row.tensor(dtype), weight = row.per_row();
    const Standardized it(row, x, row.scalar());
    const RowValue of_bias = sum(dy), of_weight = sum(dy * it.centred) * it.scale;
    const RowValue share = 1.0F / row.columns();
    const RowValue along = of_weight * share * it.scale;
    row.store(dtype, (dy - of_bias * share - it.centred * along) * (it.scale * weight));
    row.store_per_row(of_weight);
    row.store_per_row(of_bias);
}

void write_add_layer_norm(RowBuilder& row, DType dtype) {
    const RowValue total = sum_of_two(row, dtype);
    const RowValue weight = row.column(), bias = row.column();
    const Standardized it(row, total, row.scalar());
    row.store(dtype, total);
    row.store(dtype, multiply_add(it.centred * it.scale, weight, bias));
}

void write_add_layer_norm_backward(RowBuilder& row, DType dtype) {
    const RowValue dy = row.tensor(dtype), beside = row.tensor(dtype), x = row.tensor(dtype);
    const RowValue weight = row.column();
    const Standardized it(row, x, row.scalar());
    row.store(dtype, slope_of_standardized(row, dy * weight, it) + beside);
    row.add_to_column(dy * (it.centred * it.scale));
    row.add_to_column(dy);
}

void write_add_rms_norm(RowBuilder& row, DType dtype) {
    const RowValue total = sum_of_two(row, dtype), weight = row.column(), eps = row.scalar();
    row.store(dtype, total);
    row.store(dtype, total * (1.0F / sqrt(mean(row, total * total) + eps)) * weight);
}

void write_add_rms_norm_backward(RowBuilder& row, DType dtype) {
    const RowValue dy = row.tensor(dtype), beside = row.tensor(dtype), x = row.tensor(dtype);
    const RowValue weight = row.column();
    const RowValue scale = 1.0F / sqrt(mean(row, x * x) + row.scalar());
    const RowValue normal = x * scale, slope = dy * weight;
    const RowValue along = mean(row, slope * x) * scale;
    row.store(dtype, multiply_add(slope - normal * along, scale, beside));
    row.add_to_column(dy * normal);
}

}  // namespace dlprim
