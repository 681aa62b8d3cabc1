#include "primitives/programs/row_programs.h"

#include <map>
#include <stdexcept>

#include "primitives/programs/activation_programs.h"
#include "primitives/programs/gradient_programs.h"
#include "primitives/programs/loss_programs.h"
#include "rows/row_builder.h"

namespace dlprim {
namespace {

// The reciprocal of the length is one number for all rows.
RowValue mean(RowBuilder& row, RowValue x) { return sum(x) * (1.0F / row.columns()); }

void softmax(RowBuilder& row, DType dtype) {
    const RowValue x = row.tensor(dtype);
    const RowValue power = exp(x - highest(x));
    row.store(dtype, power * (1.0F / sum(power)));
}

// dx = y (dy - sum(dy y)).
void softmax_backward(RowBuilder& row, DType dtype) {
    const RowValue dy = row.tensor(dtype), y = row.tensor(dtype);
    row.store(dtype, y * (dy - sum(dy * y)));
}

void log_softmax(RowBuilder& row, DType dtype) {
    const RowValue x = row.tensor(dtype);
    const RowValue above = highest(x);
    row.store(dtype, (x - above) - log(sum(exp(x - above))));
}

// dx = dy - exp(y) sum(dy).
void log_softmax_backward(RowBuilder& row, DType dtype) {
    const RowValue dy = row.tensor(dtype), y = row.tensor(dtype);
    row.store(dtype, dy - exp(y) * sum(dy));
}

// In two passes, as the mean may be far from 0.
struct Standardized {
    Standardized(RowBuilder& row, RowValue x, RowValue eps)
        : centred(x - mean(row, x)), scale(1.0F / sqrt(mean(row, centred * centred) + eps)) {}

    RowValue centred;
    RowValue scale;
};

void layer_norm(RowBuilder& row, DType dtype) {
    const RowValue x = row.tensor(dtype), weight = row.column(), bias = row.column();
    const Standardized it(row, x, row.scalar());
    row.store(dtype, multiply_add(it.centred * it.scale, weight, bias));
}

// With g = dy weight and the normalised h: dx = scale (g - mean(g) - h mean(g h)).
void layer_norm_backward(RowBuilder& row, DType dtype) {
    const RowValue dy = row.tensor(dtype), x = row.tensor(dtype), weight = row.column();
    const Standardized it(row, x, row.scalar());
    const RowValue normal = it.centred * it.scale;
    const RowValue slope = dy * weight;
    // A factor outside of the sum: it need not wait for the scale.
    const RowValue along = mean(row, slope * it.centred) * it.scale;
    row.store(dtype, (slope - mean(row, slope) - normal * along) * it.scale);
    row.add_to_column(dy * normal);
    row.add_to_column(dy);
}

void rms_norm(RowBuilder& row, DType dtype) {
    const RowValue x = row.tensor(dtype), weight = row.column(), eps = row.scalar();
    row.store(dtype, x * (1.0F / sqrt(mean(row, x * x) + eps)) * weight);
}

void rms_norm_backward(RowBuilder& row, DType dtype) {
    const RowValue dy = row.tensor(dtype), x = row.tensor(dtype), weight = row.column();
    const RowValue scale = 1.0F / sqrt(mean(row, x * x) + row.scalar());
    const RowValue normal = x * scale;
    const RowValue slope = dy * weight;
    const RowValue along = mean(row, slope * x) * scale;
    row.store(dtype, (slope - normal * along) * scale);
    row.add_to_column(dy * normal);
}

using Writer = void (*)(RowBuilder&, DType);

const std::map<std::string, Writer>& writers() {
    static const std::map<std::string, Writer> all = [] {
        std::map<std::string, Writer> found{
            {"softmax", softmax},         {"softmax_backward", softmax_backward},
            {"log_softmax", log_softmax}, {"log_softmax_backward", log_softmax_backward},
            {"layer_norm", layer_norm},   {"layer_norm_backward", layer_norm_backward},
            {"rms_norm", rms_norm},       {"rms_norm_backward", rms_norm_backward},
            {"square_sum", square_sum},   {"scaled", scaled},
            {"limited", limited}};
        return found;
    }();
    return all;
}

}  // namespace

RowSpec row_program(const std::string& name, DType dtype) {
    RowBuilder row;
    const auto writer = writers().find(name);
    if (writer != writers().end()) {
        writer->second(row, dtype);
    } else if (!write_activation_program(row, name, dtype) &&
               !write_loss_program(row, name, dtype)) {
        std::string names;
        for (const std::string& known : row_program_names()) {
            names += (names.empty() ? "" : ", ") + known;
        }
        throw std::invalid_argument("there is no row program '" + name + "'; there are " + names);
    }
    return row.spec();
}

std::vector<std::string> row_program_names() {
    std::vector<std::string> names;
    for (const auto& [name, writer] : writers()) names.push_back(name);
    for (const std::string& name : activation_program_names()) {
        names.push_back(name);
        names.push_back(name + "_backward");
    }
    for (const std::string& name : loss_program_names()) names.push_back(name);
    return names;
}

}  // namespace dlprim
