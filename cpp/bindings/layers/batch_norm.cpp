#include "primitives/layers/batch_norm.h"

#include <algorithm>
#include <cmath>
#include <string>

#include <pybind11/stl.h>

#include "bindings/layers/activations.h"

namespace dlprim::bindings {
namespace {

void require_both(const char* names, const void* first, const void* second) {
    if ((first == nullptr) != (second == nullptr)) {
        throw py::value_error(std::string("one of ") + names + " is missing, expected both");
    }
}

class PyBatchNorm {
public:
    PyBatchNorm(const PyActivations& it, bool relu, float epsilon)
        : norm_{it.tensor(), it.layout(), relu, epsilon},
          forms_(it.table(
              {"src", "residual", "out", "diff_dst", "diff_addend", "dst", "diff_residual"},
              {"relu_mask"},
              {"weights", "bias", "running_mean", "running_var", "mean", "inverse_std", "variance",
               "given_diff_weights", "given_diff_bias", "diff_weights", "diff_bias"})) {}

    void forward(const py::dict& arrays) const {
        NamedCall call(forms_, arrays);
        BatchNormForward tensors{.src = call.required("src"),
                                 .weight = call.optional("weights"),
                                 .bias = call.optional("bias"),
                                 .residual = call.optional("residual"),
                                 .given_mean = call.optional("running_mean"),
                                 .given_variance = call.optional("running_var")};
        require_both("running_mean and running_var", tensors.given_mean, tensors.given_variance);
        tensors.dst = call.optional_result("out", {tensors.src, tensors.residual});
        tensors.relu_mask = call.optional_result("relu_mask");
        tensors.mean = call.optional_result("mean");
        tensors.inverse_std = call.optional_result("inverse_std");
        tensors.variance = call.optional_result("variance");
        call.run([&] { batch_norm_forward(norm_, tensors); });
    }

    void backward(const py::dict& arrays, bool is_given, double given_pixels) const {
        NamedCall call(forms_, arrays);
        BatchNormBackward tensors{.diff_dst = call.required("diff_dst"),
                                  .diff_addend = call.optional("diff_addend"),
                                  .src = call.required("src"),
                                  .mean = call.optional("mean"),
                                  .inverse_std = call.optional("inverse_std"),
                                  .weight = call.optional("weights"),
                                  .dst = call.optional("dst"),
                                  .relu_mask = call.optional("relu_mask"),
                                  .bias = call.optional("bias"),
                                  .is_given = is_given,
                                  .given_diff_weight = call.optional("given_diff_weights"),
                                  .given_diff_bias = call.optional("given_diff_bias"),
                                  .given_pixels = given_pixels};
        require_both("given_diff_weights and given_diff_bias", tensors.given_diff_weight,
                     tensors.given_diff_bias);
        tensors.diff_src = call.optional_result("out", {tensors.src, tensors.diff_dst});
        tensors.diff_residual = call.optional_result("diff_residual", {tensors.diff_dst});
        tensors.diff_weight = call.optional_result("diff_weights");
        tensors.diff_bias = call.optional_result("diff_bias");
        call.run([&] { batch_norm_backward(norm_, tensors); });
    }

    // forward() with the statistics of the minibatch as a step of a network.
    void add_to(PyNetwork& network, const std::string& label, const py::kwargs& values) const {
        StepValues step(network, "batch_norm", label, values);
        const int src = step.operand("src", forms_["src"]);
        const int weights = step.optional("weights", forms_["weights"]);
        const int bias = step.optional("bias", forms_["bias"]);
        const int residual = step.optional("residual", forms_["residual"]);
        const int dst = step.result("dst", forms_["out"], {replaced(src), replaced(residual)});
        const int relu_mask = result_if_given(step, "relu_mask");
        const int mean = step.result("mean", forms_["mean"]);
        const int variance = step.result("variance", forms_["variance"]);
        const int inverse_std = step.result("inverse_std", forms_["inverse_std"]);
        step.add([=, this](const Addresses& at) {
            batch_norm_forward(norm_, {.src = at[src],
                                       .weight = at[weights],
                                       .bias = at[bias],
                                       .residual = at[residual],
                                       .dst = at[dst],
                                       .relu_mask = at[relu_mask],
                                       .mean = at[mean],
                                       .inverse_std = at[inverse_std],
                                       .variance = at[variance]});
        });
    }

    // backward() as a step, of the mean and the variance that forward() has found; inverse_std is
    // memory for what follows from the latter.
    void add_backward(PyNetwork& network, const std::string& label,
                      const py::kwargs& values) const {
        StepValues step(network, "batch_norm_backward", label, values);
        const int diff_dst = step.operand("diff_dst", forms_["diff_dst"]);
        const int diff_addend = step.optional("diff_addend", forms_["diff_addend"]);
        const int src = step.operand("src", forms_["src"]);
        const int mean = step.operand("mean", forms_["mean"]);
        const int variance = step.operand("variance", forms_["variance"]);
        const int weights = step.optional("weights", forms_["weights"]);
        const int relu_mask = step.optional("relu_mask", forms_["relu_mask"]);
        const int dst = step.optional("dst", forms_["dst"]);
        const int inverse_std = step.result("inverse_std", forms_["inverse_std"]);
        // In blocks diff_src is no result of the network, and the plan, which asks for it first,
        // puts it on src where it can, and never diff_residual.
        const bool is_between = norm_.layout == Format::blocked;
        const int diff_src = step.result("diff_src", forms_["out"],
                                         {replaced(is_between ? src : -1), replaced(diff_dst)});
        const int diff_residual = result_if_given(step, "diff_residual");
        const int diff_weights = step.result("diff_weights", forms_["diff_weights"]);
        const int diff_bias = step.result("diff_bias", forms_["diff_bias"]);
        step.add([=, this, channels = norm_.tensor.blocks.total()](const Addresses& at) {
            const float* const variances = at[variance];
            std::transform(variances, variances + channels, static_cast<float*>(at[inverse_std]),
                           [&](float it) { return 1.0F / std::sqrt(it + norm_.epsilon); });
            batch_norm_backward(norm_, {.diff_dst = at[diff_dst],
                                        .diff_addend = at[diff_addend],
                                        .src = at[src],
                                        .mean = at[mean],
                                        .inverse_std = at[inverse_std],
                                        .weight = at[weights],
                                        .dst = at[dst],
                                        .relu_mask = at[relu_mask],
                                        .diff_src = at[diff_src],
                                        .diff_residual = at[diff_residual],
                                        .diff_weight = at[diff_weights],
                                        .diff_bias = at[diff_bias]});
        });
    }

private:
    // Of a single pixel arrays by channel are as large, and would lie there, too.
    int replaced(int value) const {
        const Activations& it = norm_.tensor;
        return it.images * it.height * it.width > 1 ? value : -1;
    }
    int result_if_given(StepValues& step, const char* name) const {
        return step.number(name) < 0 ? -1 : step.result(name, forms_[name]);
    }

    BatchNorm norm_;
    Forms forms_;
};

}  // namespace

void register_batch_norm(py::module_& module) {
    py::class_<PyBatchNorm>(module, "BatchNorm")
        .def(py::init<const PyActivations&, bool, float>())
        .def("forward", &PyBatchNorm::forward)
        .def("backward", &PyBatchNorm::backward);
    using Values = const py::kwargs&;
    network_type(module)
        .def(
            "batch_norm",
            [](PyNetwork& network, const PyBatchNorm& norm, const std::string& label,
               Values values) { norm.add_to(network, label, values); },
            py::keep_alive<1, 2>(), py::arg("norm"), py::arg("label") = "")
        .def(
            "batch_norm_backward",
            [](PyNetwork& network, const PyBatchNorm& norm, const std::string& label,
               Values values) { norm.add_backward(network, label, values); },
            py::keep_alive<1, 2>(), py::arg("norm"), py::arg("label") = "");
}

}  // namespace dlprim::bindings
