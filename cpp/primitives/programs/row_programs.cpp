#include "primitives/programs/row_programs.h"

#include <map>
#include <stdexcept>

#include "primitives/programs/activation_programs.h"
#include "primitives/programs/gradient_programs.h"
#include "primitives/programs/loss_programs.h"
#include "primitives/programs/norm_programs.h"
#include "primitives/programs/prelu_programs.h"
#include "primitives/programs/quantization_programs.h"
#include "primitives/programs/reduction_programs.h"
#include "rows/row_builder.h"

namespace dlprim {
namespace {

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
            {"softmax", softmax},
            {"softmax_backward", softmax_backward},
            {"log_softmax", log_softmax},
            {"log_softmax_backward", log_softmax_backward},
            {"layer_norm", layer_norm},
            {"layer_norm_backward", layer_norm_backward},
            {"rms_norm", rms_norm},
            {"rms_norm_backward", rms_norm_backward},
            {"row_moments", write_row_moments},
            {"channel_affine", write_channel_affine},
            {"channel_sums", write_channel_sums},
            {"channel_slope", write_channel_slope},
            {"instance_norm", write_instance_norm},
            {"instance_norm_backward", write_instance_norm_backward},
            {"add_layer_norm", write_add_layer_norm},
            {"add_layer_norm_backward", write_add_layer_norm_backward},
            {"add_rms_norm", write_add_rms_norm},
            {"add_rms_norm_backward", write_add_rms_norm_backward},
            {"prelu_of_rows", write_prelu_of_rows},
            {"prelu_of_rows_backward", write_prelu_of_rows_backward},
            {"prelu_of_columns", write_prelu_of_columns},
            {"prelu_of_columns_backward", write_prelu_of_columns_backward},
            {"sum_of_rows", write_sum_of_rows},
            {"sum_of_columns", write_sum_of_columns},
            {"max_of_rows", write_max_of_rows},
            {"min_of_rows", write_min_of_rows},
            {"max_of_tensors", write_max_of_tensors},
            {"min_of_tensors", write_min_of_tensors},
            {"place_of_max", write_place_of_max},
            {"place_of_min", write_place_of_min},
            {"square_sum", square_sum},
            {"scaled", scaled},
            {"limited", limited}};
        found.merge(quantization_programs());
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
