#include "graph/functions/function_step.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "graph/functions/element_functions.h"
#include "graph/functions/farthest_places.h"
#include "graph/functions/image_samples.h"
#include "graph/functions/layer_functions.h"
#include "graph/functions/matrix_functions.h"
#include "graph/functions/tree_sums.h"
#include "graph/functions/weighted_rows.h"
#include "graph/network.h"

namespace dlprim {
namespace {

using Make = RunOfCall (*)(const Network& network, const ArrayCall& call);

const std::map<std::string, Make>& functions() {
    static const std::map<std::string, Make> made{
        {"argmax", farthest_places}, {"argmin", farthest_places},
        {"crop_and_resize", crops},  {"cross_entropy", cross_entropies},
        {"dropout", dropped},        {"in_bytes", in_bytes},
        {"inverse", inverses},       {"look_up", looked_up},
        {"matmul", whole_products},  {"murmur3", hashes},
        {"one_hot", one_hot_rows},   {"repeated_ngrams", other_ngrams},
        {"tree_sums", tree_sums},    {"weighted_rows", weighted_rows},
    };
    return made;
}

}  // namespace

double number_of(const ArrayCall& call, const std::string& name) {
    const auto found = call.numbers.find(name);
    if (found == call.numbers.end()) {
        throw std::invalid_argument(call.function + ": " + name + " is missing, expected a number");
    }
    return found->second;
}

void require_fit(bool fits, const Network& network, const ArrayCall& call,
                 const std::string& expected) {
    if (fits) return;
    std::string given;
    for (const std::vector<int>* const values : {&call.inputs, &call.outputs}) {
        for (const int value : *values) {
            given += (given.empty() ? "" : ", ") + network.tensor(value).described();
        }
    }
    throw std::invalid_argument(call.function + " was given " + given + ", expected " + expected);
}

NetworkStep function_step(const Network& network, const ArrayCall& call, std::string label) {
    const auto found = functions().find(call.function);
    if (found == functions().end()) {
        throw std::invalid_argument("there is no function '" + call.function + "' of arrays");
    }
    const auto is_dense = [&](int value) { return network.tensor(value).is_dense(); };
    require_fit(std::all_of(call.inputs.begin(), call.inputs.end(), is_dense) &&
                    std::all_of(call.outputs.begin(), call.outputs.end(), is_dense),
                network, call, "arrays in C order");
    return {.kind = call.function,
            .label = std::move(label),
            .reads = call.inputs,
            .writes = call.outputs,
            .run = found->second(network, call)};
}

}  // namespace dlprim
