// Normalisation: of rows, alone or of a sum that the same pass makes; of channels and of groups of
// them, which are rows whose weight and bias are single values.
#include "primitives/programs/row_programs.h"

namespace dlprim {
namespace {

// The reciprocal of the length is one number for all rows.
RowValue mean(RowBuilder& row, RowValue x) { return sum(x) * (1.0F / row.columns()); }

RowValue scale_of(RowBuilder& row, RowValue x, RowValue eps) {
    return 1.0F / sqrt(mean(row, x * x) + eps);
}

// About the row's first element, so that rows of one value have it as their mean, however large it
// is and however long they are.
RowValue mean_about(RowBuilder& row, RowValue first, RowValue x) {
    return multiply_add(sum_about(x, first), 1.0F / row.columns(), first);
}

// In two passes, as the mean may be far from 0.
struct Standardized {
    Standardized(RowBuilder& row, RowValue x, RowValue first, RowValue eps)
        : middle(mean_about(row, first, x)),
          centred(x - middle),
          scale(scale_of(row, centred, eps)) {}

    RowValue middle;
    RowValue centred;
    RowValue scale;
};

// What is normalised: one tensor, or the sum of two, which is a result as well. Of a sum the
// gradient has a part of its own.
enum class Of : std::uint8_t { tensor, sum };

struct Input {
    Input(RowBuilder& row, DType dtype, Of of)
        : own(of), x(row.tensor(dtype)), residual(of == Of::sum ? row.tensor(dtype) : 0.0F) {}

    RowValue value() const { return own == Of::sum ? x + residual : x; }
    RowValue first(RowBuilder& row) const {
        return own == Of::sum ? row.first(x) + row.first(residual) : row.first(x);
    }

    Of own;
    RowValue x, residual;
};

struct Gradient {
    Gradient(RowBuilder& row, DType dtype, Of of)
        : own(of),
          dy(row.tensor(dtype)),
          of_sum(of == Of::sum ? row.tensor(dtype) : 0.0F),
          x(row.tensor(dtype)),
          weight(row.column()) {}

    RowValue slope() const { return dy * weight; }
    RowValue scaled(RowValue factor, RowValue scale) const {
        return own == Of::sum ? multiply_add(factor, scale, of_sum) : factor * scale;
    }

    Of own;
    RowValue dy, of_sum, x, weight;
};

// x, of a sum a second one, columns weight and bias, eps; of a sum that, y.
template <Of of>
void layer_norm(RowBuilder& row, DType dtype) {
    const Input in(row, dtype, of);
    const RowValue weight = row.column(), bias = row.column(), x = in.value();
    const Standardized it(row, x, in.first(row), row.scalar());
    if (of == Of::sum) row.store(dtype, x);
    row.store(dtype, multiply_add(it.centred * it.scale, weight, bias));
}

// dy, of a sum its own gradient, x, a column weight, eps; dx, sums of columns of weight and bias.
// With g = dy weight and the normalised h: dx = scale (g - mean(g) - h mean(g h)).
template <Of of>
void layer_norm_backward(RowBuilder& row, DType dtype) {
    const Gradient of_y(row, dtype, of);
    const Standardized it(row, of_y.x, row.first(of_y.x), row.scalar());
    const RowValue normal = it.centred * it.scale;
    const RowValue slope = of_y.slope();
    // A factor outside of the sum: it need not wait for the scale.
    const RowValue along = mean(row, slope * it.centred) * it.scale;
    row.store(dtype, of_y.scaled(multiply_add(normal, -along, slope - mean(row, slope)), it.scale));
    row.add_to_column(of_y.dy * normal);
    row.add_to_column(of_y.dy);
}

// The two above without a mean and a bias.
template <Of of>
void rms_norm(RowBuilder& row, DType dtype) {
    const Input in(row, dtype, of);
    const RowValue weight = row.column(), x = in.value();
    const RowValue scale = scale_of(row, x, row.scalar());
    if (of == Of::sum) row.store(dtype, x);
    row.store(dtype, x * scale * weight);
}

template <Of of>
void rms_norm_backward(RowBuilder& row, DType dtype) {
    const Gradient of_y(row, dtype, of);
    const RowValue scale = scale_of(row, of_y.x, row.scalar());
    const RowValue normal = of_y.x * scale;
    const RowValue slope = of_y.slope();
    const RowValue along = mean(row, slope * of_y.x) * scale;
    row.store(dtype, of_y.scaled(multiply_add(normal, -along, slope), scale));
    row.add_to_column(of_y.dy * normal);
}

// Of rows that are groups: x, eps; per row the mean and 1 / sqrt(var + eps).
void row_moments(RowBuilder& row, DType dtype) {
    const RowValue x = row.tensor(dtype);
    const Standardized it(row, x, row.first(x), row.scalar());
    row.store_per_row(it.middle);
    row.store_per_row(it.scale);
}

// Of rows that are channels: x; per row the mean and the variance, 0 where the row has one value.
void row_variances(RowBuilder& row, DType dtype) {
    const RowValue x = row.tensor(dtype), middle = mean_about(row, row.first(x), x);
    row.store_per_row(middle);
    row.store_per_row(mean(row, (x - middle) * (x - middle)));
}

// Of rows that are channels: x, per row a mean, a scale and a bias; (x - mean) scale + bias.
void channel_affine(RowBuilder& row, DType dtype) {
    const RowValue x = row.tensor(dtype), middle = row.per_row();
    const RowValue scale = row.per_row(), bias = row.per_row();
    row.store(dtype, multiply_add(x - middle, scale, bias));
}

// Of rows that are channels: dy, x, per row a mean; per row sum(dy) and sum(dy (x - mean)).
void channel_sums(RowBuilder& row, DType dtype) {
    const RowValue dy = row.tensor(dtype), x = row.tensor(dtype), middle = row.per_row();
    row.store_per_row(sum(dy));
    row.store_per_row(sum(dy * (x - middle)));
}

// Of rows that are channels: dy, x, per row a mean and three numbers; dy a + (x - mean) b + c.
void channel_slope(RowBuilder& row, DType dtype) {
    const RowValue dy = row.tensor(dtype), x = row.tensor(dtype), middle = row.per_row();
    const RowValue of_dy = row.per_row(), of_x = row.per_row(), constant = row.per_row();
    row.store(dtype, multiply_add(dy, of_dy, multiply_add(x - middle, of_x, constant)));
}

// Groups of one channel. x, per row weight and bias, eps; y.
void instance_norm(RowBuilder& row, DType dtype) {
    const RowValue x = row.tensor(dtype), weight = row.per_row(), bias = row.per_row();
    const Standardized it(row, x, row.first(x), row.scalar());
    row.store(dtype, multiply_add(it.centred, it.scale * weight, bias));
}

// dy, x, per row a weight, eps; dx, per row the gradients of weight and bias.
void instance_norm_backward(RowBuilder& row, DType dtype) {
    const RowValue dy = row.tensor(dtype), x = row.tensor(dtype), weight = row.per_row();
    const Standardized it(row, x, row.first(x), row.scalar());
    const RowValue of_bias = sum(dy), of_weight = sum(dy * it.centred) * it.scale;
    const RowValue share = 1.0F / row.columns();
    const RowValue along = of_weight * share * it.scale;
    row.store(dtype, (dy - of_bias * share - it.centred * along) * (it.scale * weight));
    row.store_per_row(of_weight);
    row.store_per_row(of_bias);
}

}  // namespace

RowFamily norm_programs() {
    return {{"layer_norm", layer_norm<Of::tensor>},
            {"layer_norm_backward", layer_norm_backward<Of::tensor>},
            {"add_layer_norm", layer_norm<Of::sum>},
            {"add_layer_norm_backward", layer_norm_backward<Of::sum>},
            {"rms_norm", rms_norm<Of::tensor>},
            {"rms_norm_backward", rms_norm_backward<Of::tensor>},
            {"add_rms_norm", rms_norm<Of::sum>},
            {"add_rms_norm_backward", rms_norm_backward<Of::sum>},
            {"row_moments", row_moments},
            {"row_variances", row_variances},
            {"channel_affine", channel_affine},
            {"channel_sums", channel_sums},
            {"channel_slope", channel_slope},
            {"instance_norm", instance_norm},
            {"instance_norm_backward", instance_norm_backward}};
}

}  // namespace dlprim
