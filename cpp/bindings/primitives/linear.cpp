#include "primitives/linear/linear.h"

#include <array>
#include <memory>
#include <string>

#include <pybind11/stl.h>

#include "bindings/primitives/primitive.h"
#include "bindings/register.h"

namespace dlprim::bindings {
namespace {

// Weights that are packed for both passes hold the forward form and behind it the backward form.
std::vector<TensorForm> forms_of(const LinearSpec& spec) {
    std::vector<TensorForm> forms =
        linear_forms(spec.shape, spec.dtype, spec.dst_dtype, spec.layout);
    TensorForm forward = form_of(forms, "weights");
    forward.name = "forward_weights";
    for (TensorForm& each : forms) {
        if (each.name == "weights" && !is_int8(spec.dtype)) each.packed_shape.front() = 2;
    }
    forms.push_back(forward);
    return forms;
}

class PyLinear : public Primitive<Linear, &Linear::backward_activation> {
public:
    explicit PyLinear(const LinearSpec& spec) : Primitive(spec, &forms_of, "layer", "saved") {}

    py::object forward(py::handle src, py::handle weights, py::handle bias, py::handle quantized,
                       py::handle before_activation, py::handle out) const {
        Call call;
        LinearForward tensors{.src = call.operand("src", src, src_),
                              .weights = call.operand("weights", weights, weights_form_of(weights)),
                              .bias = bias_in(call, bias),
                              .quantization = quantization_in(call, quantized)};
        const Written dst = call.result("out", out, dst_, src);
        tensors.dst = dst.data;
        tensors.before_activation =
            call.optional_result("before_activation", before_activation, dst_).data;
        call.run([&] { core_.forward(tensors); }, flops_);
        return dst.array;
    }

    // forward() as a step of a network.
    void add_to(PyNetwork& network, const std::string& label, py::handle quantized,
                const py::kwargs& values) const {
        StepValues step(network, "linear", label, values);
        const bool forward_alone = step.tensor("weights").shape == forward_weights_.shape();
        const int src = step.operand("src", src_);
        const int weights = step.operand("weights", forward_alone ? forward_weights_ : weights_);
        const int bias = bias_in(step);
        const auto quantization = quantization_in(step, quantized);
        const int dst = step.result("dst", dst_);
        step.add(
            [=, this](const Addresses& at) {
                core_.forward({.src = at[src],
                               .weights = at[weights],
                               .bias = at[bias],
                               .quantization = quantization(at),
                               .dst = at[dst]});
            },
            flops_);
    }

    py::object backward_data(py::handle diff_dst, py::handle weights, py::handle out) const {
        require_backward();
        Call call;
        const Memory gradient = call.operand("diff_dst", diff_dst, dst_);
        const char* const matrix =
            call.operand("weights", weights, weights_).data + weights_.layout().bytes();
        const Written diff_src = call.result("out", out, src_, diff_dst);
        call.run([&] { core_.backward_data(gradient, matrix, diff_src.data); }, flops_);
        return diff_src.array;
    }

    // Where there is an `out`, its shape says whether there is a backward form.
    py::object pack_weights(py::handle w, py::handle out, bool backward) const {
        const Form& to = !out.is_none() ? weights_form_of(out)
                         : backward     ? weights_
                                        : forward_weights_;
        return pack_then(to, to, "w", w, out, [&](const Plain& plain) {
            std::shared_ptr<const Reorder> second;
            if (to.shape().front() > 1) {
                second = forms_["backward_weights"].packing(plain.dtype, plain.strides);
            }
            return [&to, source = plain.data, second](Memory packed) {
                if (second) second->run(source, packed.data + to.layout().bytes());
            };
        });
    }

private:
    const Form& weights_form_of(py::handle array) const {
        return has_shape(array, forward_weights_.shape()) ? forward_weights_ : weights_;
    }

    const Form& forward_weights_ = forms_["forward_weights"];
};

std::unique_ptr<PyLinear> make_linear(const std::array<std::int64_t, 3>& shape,
                                      const std::string& dtype, const std::string& dst_dtype,
                                      const std::string& layout, const std::string& activation,
                                      bool bias) {
    return std::make_unique<PyLinear>(
        LinearSpec{.shape = {.N = shape[0], .C = shape[1], .K = shape[2]},
                   .dtype = parse_dtype(dtype),
                   .dst_dtype = parse_dtype(dst_dtype),
                   .layout = layout == "plain" ? Format::nhwc : Format::blocked,
                   .activation = parse_activation(activation),
                   .bias = bias,
                   .int_bias = is_int8(parse_dtype(dtype))});
}

}  // namespace

void register_linear(py::module_& module) {
    py::class_<PyLinear> type(module, "Linear");
    type.def(py::init(&make_linear))
        .def("forward", &PyLinear::forward)
        .def("backward_data", &PyLinear::backward_data)
        .def("backward_weights", &PyLinear::backward_weights)
        .def("backward_activation", &PyLinear::backward_activation)
        .def("pack_weights", &PyLinear::pack_weights)
        .def_property_readonly(
            "scratch_bytes",
            [](const PyLinear& linear) { return scratch_by_pass(linear, linear.core().passes()); })
        .def_property_readonly(
            "flops", [](const PyLinear& linear) { return linear.core().spec().shape.flops(); });
    define_schedules(type, kPassKinds, [](const Linear& linear) { return linear.passes(); });
    define_forms(module, type);
    network_type(module).def(
        "linear",
        [](PyNetwork& network, const PyLinear& linear, const std::string& label,
           const py::object& quantized,
           const py::kwargs& values) { linear.add_to(network, label, quantized, values); },
        py::keep_alive<1, 2>(), py::arg("linear"), py::arg("label") = "", py::kw_only(),
        py::arg("quantized") = py::none());
}

}  // namespace dlprim::bindings
