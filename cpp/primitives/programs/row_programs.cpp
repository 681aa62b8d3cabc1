#include "primitives/programs/row_programs.h"

#include <stdexcept>

namespace dlprim {
namespace {

const RowFamily& programs() {
    static const RowFamily all = [] {
        RowFamily found;
        for (const auto family :
             {activation_programs, gradient_programs, loss_programs, norm_programs, prelu_programs,
              quantization_programs, reduction_programs, softmax_programs}) {
            found.merge(family());
        }
        return found;
    }();
    return all;
}

}  // namespace

RowSpec row_program(const std::string& name, DType dtype) {
    const auto writer = programs().find(name);
    if (writer == programs().end()) {
        std::string names;
        for (const std::string& known : row_program_names()) {
            names += (names.empty() ? "" : ", ") + known;
        }
        throw std::invalid_argument("there is no row program '" + name + "'; there are " + names);
    }
    RowBuilder row;
    writer->second(row, dtype);
    return row.spec();
}

std::vector<std::string> row_program_names() {
    std::vector<std::string> names;
    for (const auto& [name, writer] : programs()) names.push_back(name);
    return names;
}

}  // namespace dlprim
