#include "graph/functions/layer_functions.h"

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "graph/network.h"
#include "primitives/layers/dropout.h"
#include "primitives/layers/softmax_cross_entropy.h"
#include "primitives/tensor/workspace.h"

namespace dlprim {
namespace {

bool is_float(const NetworkTensor& it) { return it.dtype == "float32" || it.dtype == "bfloat16"; }

bool is_like(const NetworkTensor& it, const NetworkTensor& other) {
    return it.dtype == other.dtype && it.shape == other.shape;
}

bool has(const NetworkTensor& it, const char* dtype, std::int64_t elements) {
    return it.dtype == dtype && it.elements() == elements;
}

DType float_of(const NetworkTensor& it) { return it.dtype == "float32" ? DType::f32 : DType::bf16; }

struct CrossEntropy {
    ArrayCall call;
    SoftmaxCrossEntropy problem;
    bool has_rows;

    void run(const Addresses& at) const {
        const auto bytes = static_cast<std::int64_t>(sizeof(std::int64_t));
        const WorkspacePool::Lease own(WorkspacePool::lasting(), problem.rows * bytes);
        auto* const targets = reinterpret_cast<std::int64_t*>(own.data());
        // Copied before they are checked: whoever owns the array may write to it meanwhile.
        const std::int64_t* const given = at[call.inputs[1]];
        std::copy_n(given, problem.rows, targets);
        for (std::int64_t row = 0; row < problem.rows; ++row) {
            const std::int64_t target = targets[row];
            if (target == problem.ignored || (target >= 0 && target < problem.classes)) continue;
            throw std::out_of_range("target " + std::to_string(target) + " is outside of " +
                                    std::to_string(problem.classes) + " elements");
        }
        SoftmaxCrossEntropy whole = problem;
        whole.logits = at[call.inputs[0]];
        whole.targets = targets;
        if (call.inputs.size() > 2) whole.weights = at[call.inputs[2]];
        if (call.outputs.size() > 1) whole.diff_logits = at[call.outputs[1]];
        float* const losses = at[call.outputs[0]];
        if (has_rows) whole.losses = losses;
        const double loss = softmax_cross_entropy(whole);
        if (!has_rows) *losses = static_cast<float>(loss);
    }
};

}  // namespace

RunOfCall cross_entropies(const Network& network, const ArrayCall& call) {
    const auto input = [&](std::size_t i) { return network.tensor(call.inputs.at(i)); };
    const auto output = [&](std::size_t i) { return network.tensor(call.outputs.at(i)); };
    const bool has_rows = number_of(call, "rows") != 0;
    const bool counts = (call.inputs.size() == 2 || call.inputs.size() == 3) &&
                        (call.outputs.size() == 1 || call.outputs.size() == 2);
    require_fit(
        counts && is_float(input(0)) && !input(0).shape.empty() && input(0).shape.back() > 0,
        network, call, "logits (..., K), targets, perhaps weights, and one or two results");
    const NetworkTensor logits = input(0);
    const std::int64_t classes = logits.shape.back(), rows = logits.elements() / classes;
    require_fit(has(input(1), "int64", rows) && has(output(0), "float32", has_rows ? rows : 1) &&
                    (call.inputs.size() < 3 || has(input(2), "float32", classes)) &&
                    (call.outputs.size() < 2 || is_like(output(1), logits)),
                network, call, "a target of int64 for each row, float32 weights and losses");
    const CrossEntropy made{
        .call = call,
        .problem = {.rows = rows,
                    .classes = classes,
                    .dtype = float_of(logits),
                    .ignored = static_cast<std::int64_t>(number_of(call, "ignored")),
                    .smoothing = static_cast<float>(number_of(call, "smoothing")),
                    .averages = number_of(call, "averages") != 0},
        .has_rows = has_rows};
    return [made](const Addresses& at) { made.run(at); };
}

RunOfCall dropped(const Network& network, const ArrayCall& call) {
    require_fit(call.inputs.size() == 3 && call.outputs.size() == 1, network, call,
                "x, a seed and an offset, and one result");
    const NetworkTensor& x = network.tensor(call.inputs[0]);
    require_fit(is_float(x) && is_like(network.tensor(call.outputs[0]), x) &&
                    has(network.tensor(call.inputs[1]), "int64", 1) &&
                    has(network.tensor(call.inputs[2]), "int64", 1),
                network, call, "x of float32 or bfloat16, a seed and an offset of int64");
    const Dropout dropout{.threshold = static_cast<std::uint64_t>(number_of(call, "threshold")),
                          .scale = static_cast<float>(number_of(call, "scale"))};
    return [call, dropout, dtype = float_of(x), count = x.elements()](const Addresses& at) {
        const std::uint64_t *const seed = at[call.inputs[1]], *const offset = at[call.inputs[2]];
        Dropout of_run = dropout;
        of_run.seed = *seed;
        of_run.offset = *offset;
        run_dropout(of_run, dtype, count, at[call.inputs[0]], at[call.outputs[0]]);
    };
}

}  // namespace dlprim
