// Optimiser steps of networks, and the norm of gradients, which plain functions ask for too.
#include <array>
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <pybind11/stl.h>

#include "bindings/arrays/without_gil.h"
#include "bindings/graph/network.h"
#include "bindings/register.h"
#include "graph/update_step.h"
#include "primitives/layers/gradient_norm.h"

namespace dlprim::bindings {
namespace {

// The gradient, values, what they become, and the number among counts.
using Updated = std::tuple<int, std::array<int, 5>, std::array<int, 5>, std::int64_t>;

// Settings, counts and factor are the numbers.
void add_update(PyNetwork& network, const std::string& rule, const std::vector<Updated>& parameters,
                const std::array<int, 3>& numbers, const std::string& label) {
    UpdateValues values{.settings = numbers[0], .counts = numbers[1], .factor = numbers[2]};
    for (const auto& [gradient, own, next, number] : parameters) {
        values.parameters.push_back({gradient, own, next, number});
    }
    network.add(
        update_step(network.core(), update_rule(rule), values, network.label_or_number(label)));
}

void add_clip(PyNetwork& network, const std::vector<int>& gradients, int limit, int norm,
              int factor, const std::string& label) {
    network.add(clip_step(network.core(),
                          {.gradients = gradients, .limit = limit, .norm = norm, .factor = factor},
                          network.label_or_number(label)));
}

double gradient_norm(const std::vector<py::array_t<float, py::array::c_style>>& gradients) {
    std::vector<std::int64_t> counts;
    std::vector<const float*> arrays;
    for (const auto& it : gradients) {
        counts.push_back(it.size());
        arrays.push_back(it.data());
    }
    const WithoutGil without_gil;
    return GradientNorm(counts).run(arrays.data());
}

}  // namespace

void register_update_steps(py::module_& module) {
    network_type(module)
        .def("update", &add_update, py::arg("rule"), py::arg("parameters"), py::arg("numbers"),
             py::arg("label") = "")
        .def("clip", &add_clip, py::arg("gradients"), py::arg("limit"), py::arg("norm"),
             py::arg("factor"), py::arg("label") = "");
    module.def("gradient_norm", &gradient_norm, py::arg("gradients"));
    module.def("clipping_factor", &clipping_factor, py::arg("norm"), py::arg("limit"));
}

}  // namespace dlprim::bindings
