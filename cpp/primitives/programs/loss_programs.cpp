#include "primitives/programs/loss_programs.h"

#include <map>

#include "primitives/programs/activation_programs.h"

namespace dlprim {
namespace {

using Arguments = LossCurve::Arguments;

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

const std::vector<LossCurve>& curves() {
    static const std::vector<LossCurve> all = {
        {"mse_loss", false, square, square_slope},
        {"bce_with_logits", true, logistic, logistic_slope},
    };
    return all;
}

// Of the two the first and the second.
struct Weights {
    RowShape weight = RowShape::scalar;
    RowShape positive_weight = RowShape::scalar;
};
enum class Form : std::uint8_t { value, sum, backward, slope, with_slope };

struct LossProgram {
    const LossCurve* curve;
    Weights weights;
    Form form;
};

const std::map<std::string, LossProgram>& programs() {
    static const std::map<std::string, LossProgram> all = [] {
        const std::map<std::string, Weights> kinds{
            {"", {}},
            {"_columns", {RowShape::column, RowShape::column}},
            {"_tensor", {RowShape::tensor, RowShape::column}},
            {"_tensors", {RowShape::tensor, RowShape::tensor}}};
        const std::map<std::string, Form> forms{{"", Form::value},
                                                {"_sum", Form::sum},
                                                {"_backward", Form::backward},
                                                {"_slope", Form::slope},
                                                {"_with_slope", Form::with_slope}};
        std::map<std::string, LossProgram> found;
        for (const LossCurve& curve : curves()) {
            for (const auto& [kind, weights] : kinds) {
                if (!curve.is_weighted && !kind.empty()) continue;
                for (const auto& [suffix, form] : forms) {
                    found[curve.name + kind + suffix] = {&curve, weights, form};
                }
            }
        }
        return found;
    }();
    return all;
}

RowValue weight_of(RowBuilder& row, RowShape shape) {
    switch (shape) {
        case RowShape::column: return row.column();
        case RowShape::tensor: return row.tensor(DType::f32);
        default: return row.scalar();
    }
}

}  // namespace

bool write_loss_program(RowBuilder& row, const std::string& name, DType dtype) {
    const auto found = programs().find(name);
    if (found == programs().end()) return false;
    const LossProgram& it = found->second;
    RowValue factor = 1.0F;
    if (it.form == Form::backward) factor = row.tensor(dtype);
    const RowValue x = row.tensor(dtype), y = row.tensor(dtype);
    Arguments at{x, y, 1.0F, 1.0F};
    if (it.curve->is_weighted) {
        at.weight = weight_of(row, it.weights.weight);
        at.positive_weight = weight_of(row, it.weights.positive_weight);
    }
    if (it.form == Form::value) {
        row.store(dtype, it.curve->value(at));
        return true;
    }
    if (it.form == Form::slope || it.form == Form::with_slope) factor = row.scalar();
    if (it.form != Form::sum) row.store(dtype, it.curve->slope(at) * factor);
    if (it.form == Form::sum || it.form == Form::with_slope) {
        row.store_per_row(sum(it.curve->value(at)));
    }
    return true;
}

std::vector<std::string> loss_program_names() {
    std::vector<std::string> names;
    for (const auto& [name, program] : programs()) names.push_back(name);
    return names;
}

}  // namespace dlprim
