// What training has beside layers: limits on gradients, and losses of single elements, which are
// the value, its sum along a row, and the gradient with respect to x, whose factor is a tensor or
// one number. A factor of one number and the sum may come together, so that training reads its
// operands once.
#include <map>
#include <vector>

#include "primitives/programs/activation_programs.h"
#include "primitives/programs/row_programs.h"

namespace dlprim {
namespace {

struct Arguments {
    RowValue x, y, weight, positive_weight;
};

RowValue square(const Arguments& at) { return (at.x - at.y) * (at.x - at.y); }
RowValue square_slope(const Arguments& at) { return (at.x - at.y) * 2.0F; }

// p y softplus(-x) + (1 - y) softplus(x), with one exponential of -|x| that value and slope share.
struct Logistic {
    explicit Logistic(const Arguments& at)
        : positive(at.positive_weight * at.y),
          negative(1.0F - at.y),
          both(positive + negative),
          power(exp(-abs(at.x))) {}

    RowValue positive;
    RowValue negative;
    RowValue both;
    RowValue power;
};

RowValue logistic(const Arguments& at) {
    const Logistic it(at);
    // Of the two terms of the order of x only the one that is not cancelled.
    const RowValue factor = select(at.x < 0.0F, -it.positive, it.negative);
    return multiply_add(factor, at.x, it.both * log_one_more(it.power)) * at.weight;
}

RowValue logistic_slope(const Arguments& at) {
    const Logistic it(at);
    const RowValue small = it.both * (it.power / (it.power + 1.0F));  // sigmoid(-|x|)
    return select(at.x < 0.0F, small - it.positive, it.negative - small) * at.weight;
}

// A loss of x against the target y, and its slope with respect to x.
struct LossCurve {
    const char* name;
    bool is_weighted;  // takes both weights, else none
    RowValue (*value)(const Arguments& at);
    RowValue (*slope)(const Arguments& at);
};

// Of the two the first and the second.
struct Weights {
    RowShape weight = RowShape::scalar;
    RowShape positive_weight = RowShape::scalar;
};
enum class Form : std::uint8_t { value, sum, backward, slope, with_slope };

RowValue weight_of(RowBuilder& row, RowShape shape) {
    switch (shape) {
        case RowShape::column: return row.column();
        case RowShape::tensor: return row.tensor(DType::f32);
        default: return row.scalar();
    }
}

void loss(RowBuilder& row, DType dtype, const LossCurve& curve, const Weights& weights, Form form) {
    RowValue factor = 1.0F;
    if (form == Form::backward) factor = row.tensor(dtype);
    const RowValue x = row.tensor(dtype), y = row.tensor(dtype);
    Arguments at{x, y, 1.0F, 1.0F};
    if (curve.is_weighted) {
        at.weight = weight_of(row, weights.weight);
        at.positive_weight = weight_of(row, weights.positive_weight);
    }
    if (form == Form::value) return row.store(dtype, curve.value(at));
    if (form == Form::slope || form == Form::with_slope) factor = row.scalar();
    if (form != Form::sum) row.store(dtype, curve.slope(at) * factor);
    if (form == Form::sum || form == Form::with_slope) row.store_per_row(sum(curve.value(at)));
}

// Between the backward pass and the optimiser's step: limits on gradients.

// x, a factor; their product.
void scaled(RowBuilder& row, DType dtype) {
    const RowValue x = row.tensor(dtype), factor = row.scalar();
    row.store(dtype, x * factor);
}

// x, a number that is not negative; x, no further from 0 than that. NaN stays: where one operand of
// a comparison is NaN, the second is taken.
void limited(RowBuilder& row, DType dtype) {
    const RowValue x = row.tensor(dtype), most = row.scalar();
    row.store(dtype, smaller(most, larger(-most, x)));
}

}  // namespace

// A name is that of a loss; then what its two weights are, numbers, columns ("_columns"), tensors
// of float32 ("_tensors") or the first of them one and the second a column ("_tensor"); then what
// is computed:
//
//     ""             x, y, weights; the value
//     "_sum"         x, y, weights; the value's sum for every row
//     "_backward"    dy, x, y, weights; dy times the slope
//     "_slope"       x, y, weights, a number; the number times the slope
//     "_with_slope"  the same operands; number times slope, and the value's sum for every row
RowFamily loss_programs() {
    const std::vector<LossCurve> curves{{"mse_loss", false, square, square_slope},
                                        {"bce_with_logits", true, logistic, logistic_slope}};
    const std::map<std::string, Weights> kinds{{"", {}},
                                               {"_columns", {RowShape::column, RowShape::column}},
                                               {"_tensor", {RowShape::tensor, RowShape::column}},
                                               {"_tensors", {RowShape::tensor, RowShape::tensor}}};
    const std::map<std::string, Form> forms{{"", Form::value},
                                            {"_sum", Form::sum},
                                            {"_backward", Form::backward},
                                            {"_slope", Form::slope},
                                            {"_with_slope", Form::with_slope}};
    RowFamily family;
    for (const LossCurve& curve : curves) {
        for (const auto& [kind, weights] : kinds) {
            if (!curve.is_weighted && !kind.empty()) continue;
            for (const auto& [suffix, form] : forms) {
                family[curve.name + kind + suffix] = [=](RowBuilder& row, DType dtype) {
                    loss(row, dtype, curve, weights, form);
                };
            }
        }
    }
    return family;
}

RowFamily gradient_programs() { return {{"scaled", scaled}, {"limited", limited}}; }

}  // namespace dlprim
