#include "graph/update_step.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <stdexcept>
#include <utility>

#include "graph/network.h"
#include "primitives/layers/gradient_norm.h"
#include "primitives/tensor/workspace.h"

namespace dlprim {
namespace {

[[noreturn]] void refuse_update(const std::string& label, const std::string& sentence) {
    throw std::invalid_argument("step " + label + " (update): " + sentence);
}

// Where and how an update runs.
class UpdateRun {
public:
    UpdateRun(const Network& network, const UpdateRule& rule, UpdateValues values)
        : values_(std::move(values)), update_(rule, parameters_in(network)) {}

    void run(const Addresses& at) const {
        const std::size_t count = values_.parameters.size();
        const WorkspacePool::Lease own(WorkspacePool::lasting(),
                                       static_cast<std::int64_t>(count * sizeof(ParameterState)));
        auto* const states = reinterpret_cast<ParameterState*>(own.data());
        const float* const factor = at[values_.factor];
        const std::int64_t* const counts = at[values_.counts];
        for (std::size_t i = 0; i < count; ++i) {
            ParameterState* const made = std::construct_at(states + i, state(at, i));
            made->count = sizes_[i];
            if (factor != nullptr) made->scale = *factor;
            if (counts != nullptr) made->steps = counts[values_.parameters[i].number] + 1;
        }
        update_.run(at[values_.settings], {states, count});
    }

private:
    // Which of its arrays each parameter has, and how large they are: the addresses mean nothing.
    std::vector<ParameterState> parameters_in(const Network& network) {
        char somewhere = 0;
        const std::vector<char*> addresses(static_cast<std::size_t>(network.count()), &somewhere);
        std::vector<ParameterState> made;
        for (std::size_t i = 0; i < values_.parameters.size(); ++i) {
            made.push_back(state({addresses.data()}, i));
            made.back().count = network.tensor(values_.parameters[i].values[0]).elements();
            sizes_.push_back(made.back().count);
        }
        return made;
    }

    ParameterState state(const Addresses& at, std::size_t i) const {
        const UpdatedParameter& it = values_.parameters[i];
        return {.weights = at[it.values[0]],
                .gradient = at[it.gradient],
                .first = at[it.values[1]],
                .second = at[it.values[2]],
                .third = at[it.values[3]],
                .copy = at[it.values[4]]};
    }

    UpdateValues values_;
    std::vector<std::int64_t> sizes_ = {};
    Update update_;
};

void require_value(const Network& network, const std::string& label, int value, const char* dtype,
                   std::int64_t least) {
    const NetworkTensor& tensor = network.tensor(value);
    const bool has_type =
        tensor.dtype == dtype || (tensor.dtype == "uint16" && std::string(dtype) == "bfloat16");
    if (has_type && tensor.elements() >= least && tensor.is_dense()) return;
    refuse_update(label, "a value is " + tensor.described() + ", expected at least " +
                             std::to_string(least) + " elements of " + dtype + " in C order");
}

void require_parameter(const Network& network, const std::string& label, const UpdateRule& rule,
                       const UpdatedParameter& it) {
    const std::int64_t size = network.tensor(it.values[0]).elements();
    require_value(network, label, it.gradient, "float32", size);
    for (std::size_t i = 0; i < it.values.size(); ++i) {
        if (it.values[i] < 0) continue;
        require_value(network, label, it.values[i], i == 4 ? "bfloat16" : "float32", size);
        if (network.tensor(it.values[i]).elements() != size ||
            !network.is_same_memory(it.values[i], it.next[i])) {
            refuse_update(label,
                          "value " + std::to_string(it.values[i]) +
                              " has another size than its parameter, or becomes one elsewhere");
        }
    }
    const bool is_missing = (rule.kind != UpdateKind::sgd && it.values[2] < 0) ||
                            (rule.counts_steps() && it.values[1] < 0);
    if (is_missing) refuse_update(label, "a parameter lacks a state that the update needs");
}

}  // namespace

NetworkStep update_step(const Network& network, const UpdateRule& rule, const UpdateValues& values,
                        std::string label) {
    NetworkStep step{.kind = "update", .label = std::move(label)};
    require_value(network, step.label, values.settings, "float64",
                  static_cast<std::int64_t>(rule.settings()));
    step.reads.push_back(values.settings);
    std::int64_t numbers = 0;
    for (const UpdatedParameter& it : values.parameters) {
        require_parameter(network, step.label, rule, it);
        numbers = std::max(numbers, it.number + 1);
        step.reads.push_back(it.gradient);
        for (std::size_t i = 0; i < it.values.size(); ++i) {
            if (it.values[i] < 0) continue;
            step.reads.push_back(it.values[i]);
            step.replaced.push_back(it.values[i]);
            step.writes.push_back(it.next[i]);
        }
    }
    if (rule.counts_steps() || values.counts >= 0) {
        require_value(network, step.label, values.counts, "int64", numbers);
        step.reads.push_back(values.counts);
    }
    if (values.factor >= 0) {
        require_value(network, step.label, values.factor, "float32", 1);
        step.reads.push_back(values.factor);
    }
    step.run = [run = std::make_shared<const UpdateRun>(network, rule, values)](
                   const Addresses& at) { run->run(at); };
    return step;
}

NetworkStep clip_step(const Network& network, const ClippedGradients& values, std::string label) {
    NetworkStep step{.kind = "clip",
                     .label = std::move(label),
                     .reads = values.gradients,
                     .writes = {values.norm, values.factor}};
    std::vector<std::int64_t> counts;
    for (const int it : values.gradients) {
        require_value(network, step.label, it, "float32", 0);
        counts.push_back(network.tensor(it).elements());
    }
    require_value(network, step.label, values.limit, "float64", 1);
    for (const int it : step.writes) require_value(network, step.label, it, "float32", 1);
    step.reads.push_back(values.limit);
    step.run = [values, norm = std::make_shared<const GradientNorm>(counts)](const Addresses& at) {
        const auto bytes = static_cast<std::int64_t>(values.gradients.size() * sizeof(float*));
        const WorkspacePool::Lease own(WorkspacePool::lasting(), bytes);
        auto* const gradients = reinterpret_cast<const float**>(own.data());
        for (std::size_t i = 0; i < values.gradients.size(); ++i) {
            gradients[i] = at[values.gradients[i]];
        }
        const double found = norm->run(gradients);
        const double* const limit = at[values.limit];
        float* const made = at[values.norm];
        float* const factor = at[values.factor];
        *made = rounded_once(found);
        *factor = clipping_factor(found, *limit);
    };
    return step;
}

}  // namespace dlprim
