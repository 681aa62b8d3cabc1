#include "primitives/programs/activation_programs.h"

#include <string>
#include <vector>

#include "jit/activation.h"
#include "primitives/programs/row_programs.h"

namespace dlprim {
namespace {

RowValue sigmoid(RowValue x) { return activated(Activation::sigmoid, x); }

// The standard normal distribution below x. Source: Abramowitz and Stegun 7.1.26, within 1.5e-7.
RowValue normal_below(RowValue x, RowValue bell) {
    constexpr float kArgument = 0.3275911F * 0.7071067812F;
    const RowValue t = 1.0F / multiply_add(abs(x), kArgument, 1.0F);
    RowValue tail = multiply_add(t, 1.061405429F, -1.453152027F);
    for (const float coefficient : {1.421413741F, -0.284496736F, 0.254829592F}) {
        tail = multiply_add(tail, t, coefficient);
    }
    const RowValue half = tail * t * (bell * 0.5F);
    return select(x < 0.0F, half, 1.0F - half);
}

RowValue gelu_slope(RowValue x, RowBuilder&) {
    constexpr float kDensity = 0.3989422804F;  // 1 / sqrt(2 pi)
    constexpr float kFar = 30;                 // beyond it the slope is 0 or 1
    const RowValue near = between(x, -kFar, kFar);
    const RowValue bell = exp(near * near * -0.5F);
    return multiply_add(near * bell, kDensity, normal_below(near, bell));
}

// (1 + tanh u) / 2 = sigmoid(2 u), whose derivative is 2 sigmoid(2 u) sigmoid(-2 u) u'.
RowValue gelu_tanh_slope(RowValue x, RowBuilder&) {
    constexpr float kTwiceRoot = 2 * 0.7978845608F;  // 2 sqrt(2 / pi)
    constexpr float kCubic = 0.044715F;
    constexpr float kFar = 30;
    const RowValue near = between(x, -kFar, kFar);
    const RowValue square = near * near;
    const RowValue u = near * kTwiceRoot * multiply_add(square, kCubic, 1.0F);
    const RowValue du = kTwiceRoot * multiply_add(square, 3 * kCubic, 1.0F);
    return multiply_add(near * du * sigmoid(-u), sigmoid(u), sigmoid(u));
}

RowValue swish_slope(RowValue x, RowBuilder&) {
    const RowValue near = between(x, -100, 100);
    return multiply_add(near * sigmoid(-near), sigmoid(near), sigmoid(near));
}

RowValue hardswish_slope(RowValue x, RowBuilder&) {
    const RowValue inside = multiply_add(x, 1.0F / 3, 0.5F);
    return select(x <= -3.0F, 0.0F, select(3.0F <= x, 1.0F, inside));
}

constexpr float kSeluScale = 1.0507009873554805F;
constexpr float kSeluAlpha = 1.6732632423543772F;

RowValue mish_slope(RowValue x, RowBuilder&) {
    const RowValue near = between(x, -100, 100);
    const RowValue t = activated(Activation::tanh, soft_positive(near));
    return multiply_add(near * (1.0F - t * t), sigmoid(near), t);
}

// A value's activation, and the slope of that. Curves with numbers of their own (leaky_relu's
// slope, elu's alpha, softplus's beta) take them as scalar operands behind the tensors.
struct Curve {
    const char* name;
    RowValue (*value)(RowValue x, RowBuilder& row);
    RowValue (*slope)(RowValue x, RowBuilder& row);
};

std::vector<Curve> curves() {
    return {
        {"relu", [](RowValue x, RowBuilder&) { return activated(Activation::relu, x); },
         [](RowValue x, RowBuilder&) { return positive(x, 1.0F, 0.0F); }},
        {"sigmoid", [](RowValue x, RowBuilder&) { return sigmoid(x); },
         [](RowValue x, RowBuilder&) { return sigmoid(x) * sigmoid(-x); }},
        {"tanh", [](RowValue x, RowBuilder&) { return activated(Activation::tanh, x); },
         [](RowValue x, RowBuilder&) {
             // 1 - tanh^2 = 4 sigmoid(2 x) sigmoid(-2 x), without cancellation.
             return sigmoid(x + x) * sigmoid(-(x + x)) * 4.0F;
         }},
        {"gelu", [](RowValue x, RowBuilder&) { return activated(Activation::gelu, x); },
         gelu_slope},
        {"gelu_tanh", [](RowValue x, RowBuilder&) { return activated(Activation::gelu_tanh, x); },
         gelu_tanh_slope},
        {"swish", [](RowValue x, RowBuilder&) { return activated(Activation::swish, x); },
         swish_slope},
        {"leaky_relu", [](RowValue x, RowBuilder& row) { return positive(x, x, x * row.scalar()); },
         [](RowValue x, RowBuilder& row) { return positive(x, 1.0F, row.scalar()); }},
        {"elu",
         [](RowValue x, RowBuilder& row) {
             return positive(x, x, exp_less_one(smaller(0.0F, x)) * row.scalar());
         },
         [](RowValue x, RowBuilder& row) { return positive(x, 1.0F, exp(x) * row.scalar()); }},
        {"selu",
         [](RowValue x, RowBuilder&) {
             return positive(x, x * kSeluScale,
                             exp_less_one(smaller(0.0F, x)) * (kSeluScale * kSeluAlpha));
         },
         [](RowValue x, RowBuilder&) {
             return positive(x, kSeluScale, exp(x) * (kSeluScale * kSeluAlpha));
         }},
        {"hardsigmoid",
         [](RowValue x, RowBuilder&) { return activated(Activation::hardsigmoid, x); },
         [](RowValue x, RowBuilder&) {
             return select(abs(x) < 3.0F, 1.0F / 6, select(is_nan(x), x, 0.0F));
         }},
        {"hardswish", [](RowValue x, RowBuilder&) { return activated(Activation::hardswish, x); },
         hardswish_slope},
        {"softplus",
         [](RowValue x, RowBuilder& row) {
             const RowValue beta = row.scalar(), threshold = row.scalar();
             return select(threshold < x * beta, x, soft_positive(x * beta) / beta);
         },
         [](RowValue x, RowBuilder& row) {
             const RowValue beta = row.scalar(), threshold = row.scalar();
             return select(threshold < x * beta, 1.0F, sigmoid(x * beta));
         }},
        {"mish",
         [](RowValue x, RowBuilder&) { return x * activated(Activation::tanh, soft_positive(x)); },
         mish_slope},
    };
}

// PReLU is a leaky relu whose slope is trained: one of each row, or one of each column. NaN is
// multiplied as a negative number is, as PyTorch does.
// x, a slope; y.
template <auto parameter>
void prelu(RowBuilder& row, DType dtype) {
    const RowValue x = row.tensor(dtype), slope = parameter(row);
    row.store(dtype, select(0.0F < x, x, x * slope));
}

// dy, x, a slope; dx, and the gradient of the slope: of a row, or added to a column.
template <auto parameter, auto store>
void prelu_backward(RowBuilder& row, DType dtype) {
    const RowValue dy = row.tensor(dtype), x = row.tensor(dtype), slope = parameter(row);
    row.store(dtype, select(0.0F < x, dy, dy * slope));
    store(row, select(0.0F < x, 0.0F, dy * x));
}

RowValue per_row(RowBuilder& row) { return row.per_row(); }
RowValue column(RowBuilder& row) { return row.column(); }
void sum_of_row(RowBuilder& row, RowValue share) { row.store_per_row(sum(share)); }
void add_to_column(RowBuilder& row, RowValue share) { row.add_to_column(share); }

}  // namespace

RowValue positive(RowValue x, RowValue then, RowValue otherwise) {
    return select(x <= 0.0F, otherwise, then);
}

// tanh(x / 2) has no cancellation.
RowValue exp_less_one(RowValue x) {
    const RowValue t = activated(Activation::tanh, x * 0.5F);
    return (t + t) / (1.0F - t);
}

RowValue soft_positive(RowValue x) { return larger(0.0F, x) + log_one_more(exp(-abs(x))); }

RowValue between(RowValue x, float least, float most) { return smaller(most, larger(least, x)); }

// The logarithm is taken of u = 1 + e as it was rounded.
RowValue log_one_more(RowValue e) {
    const RowValue u = e + 1.0F;
    return select(u == 1.0F, e, log(u) * (e / (u - 1.0F)));
}

RowValue slope_of(Activation activation, RowValue saved, RowBuilder& row) {
    switch (activation) {
        case Activation::relu6: return positive(saved, select(6.0F <= saved, 0.0F, 1.0F), 0.0F);
        case Activation::sigmoid: return saved * (1.0F - saved);
        case Activation::hardsigmoid:
            return positive(saved, select(1.0F <= saved, 0.0F, 1.0F / 6), 0.0F);
        case Activation::tanh: return multiply_add(-saved, saved, 1.0F);
        case Activation::gelu: return gelu_slope(saved, row);
        case Activation::gelu_tanh: return gelu_tanh_slope(saved, row);
        case Activation::swish: return swish_slope(saved, row);
        case Activation::hardswish: return hardswish_slope(saved, row);
        default: return positive(saved, 1.0F, 0.0F);
    }
}

// Under the name of a curve x; y. With "_backward" behind it dy, x; dx.
RowFamily activation_programs() {
    RowFamily family;
    for (const Curve& curve : curves()) {
        family[curve.name] = [curve](RowBuilder& row, DType dtype) {
            const RowValue x = row.tensor(dtype);
            row.store(dtype, curve.value(x, row));
        };
        family[std::string(curve.name) + "_backward"] = [curve](RowBuilder& row, DType dtype) {
            const RowValue dy = row.tensor(dtype), x = row.tensor(dtype);
            row.store(dtype, dy * select(is_nan(x), x, curve.slope(x, row)));
        };
    }
    return family;
}

RowFamily prelu_programs() {
    return {{"prelu_of_rows", prelu<per_row>},
            {"prelu_of_rows_backward", prelu_backward<per_row, sum_of_row>},
            {"prelu_of_columns", prelu<column>},
            {"prelu_of_columns_backward", prelu_backward<column, add_to_column>}};
}

}  // namespace dlprim
