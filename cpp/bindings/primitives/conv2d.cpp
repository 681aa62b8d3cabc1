#include "primitives/conv/conv2d.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <pybind11/stl.h>

#include "bindings/primitives/conv_binding.h"
#include "bindings/primitives/primitive.h"
#include "bindings/register.h"
#include "primitives/tensor/partition.h"

namespace dlprim::bindings {
namespace {

class PyConv2d : public Primitive<Conv2d, &Conv2d::backward_relu> {
public:
    explicit PyConv2d(const ConvSpec& spec)
        : Primitive(spec, &conv_forms_of, "convolution", "dst") {}

    py::object forward(py::handle src, py::handle weights, py::handle bias, py::handle residual,
                       py::handle relu_mask, py::handle out, py::handle quantized) const {
        Call call;
        const WeightsForm& form = weights_form_of(weights);
        const Memory filter = weights_in(call, weights, form);
        ConvForward tensors{.src = call.operand("src", src, src_),
                            .weights = filter,
                            .bias = bias_in(call, bias),
                            .residual = call.optional("residual", residual, dst_),
                            .transformed = form.part_in(filter, form.forward),
                            .quantization = quantization_in(call, quantized)};
        if (!relu_mask.is_none() && core_.spec().activation != Activation::relu) {
            throw py::value_error(
                "relu_mask was given, but the activation of the convolution is '" +
                std::string(name_of(core_.spec().activation)) + "', expected 'relu'");
        }
        const Written dst = call.result("out", out, dst_, src, {tensors.residual});
        tensors.dst = dst.data;
        tensors.relu_mask = call.optional_result("relu_mask", relu_mask, relu_mask_).data;
        call.run([&] { core_.forward(tensors); }, flops_);
        return dst.array;
    }

    py::object backward_data(py::handle diff_dst, py::handle weights, py::handle out) const {
        Call call;
        require_backward();
        const Memory gradient = call.operand("diff_dst", diff_dst, dst_);
        const WeightsForm& form = weights_form_of(weights);
        const Memory filter = weights_in(call, weights, form);
        const Written diff_src = call.result("out", out, src_, diff_dst);
        const float* const transformed = form.part_in(filter, form.backward);
        call.run([&] { core_.backward_data(gradient, filter, diff_src.data, transformed); },
                 flops_);
        return diff_src.array;
    }

    // `form`: "direct", "forward" or "all"; where there is an `out`, its shape says it. An array
    // that cannot say how its weights are transformed is returned as one that can, on the same
    // memory.
    py::object pack_weights(py::handle w, py::handle out, const std::string& form) const {
        const WeightsForm& to = out.is_none() ? weights_form(form) : weights_form_of(out);
        if (!to.is_transformed()) return pack(weights_, "w", w, out);
        const auto transform = [&](Memory packed) {
            for (const auto& [pass, at] : {std::pair{PassKind::forward, to.forward},
                                           std::pair{PassKind::backward_data, to.backward}}) {
                if (at != 0) core_.transform_weights(pass, packed, to.part_in(packed, at));
            }
        };
        const auto then = [&](const Plain&) { return transform; };
        return packed_view(pack_then(weights_, to.form, "w", w, out, then), to.form.packed_as());
    }

    // forward() as a step of a network. The residual may be dst; a relu_mask is of relu alone.
    void add_to(PyNetwork& network, const std::string& label, py::handle quantized,
                const py::kwargs& values) const {
        StepValues step(network, "conv2d", label, values);
        const WeightsForm& form = weights_form_of_shape(step.tensor("weights").shape);
        const int src = step.operand("src", src_), weights = step.operand("weights", form.form);
        if (form.is_transformed() && !step.packed_as("weights")) {
            step.refuse(unnamed_weights(form));
        }
        const int bias = bias_in(step), residual = step.optional("residual", dst_);
        const auto quantization = quantization_in(step, quantized);
        const int dst = step.result("dst", dst_, {residual});
        const int mask = step.number("relu_mask") < 0 ? -1 : step.result("relu_mask", relu_mask_);
        if (mask >= 0 && core_.spec().activation != Activation::relu) {
            step.refuse("relu_mask is for convolutions that end with relu");
        }
        step.add(
            [=, this, transformed = form.forward](const Addresses& at) {
                const Address behind{transformed == 0 ? nullptr : at[weights].data + transformed};
                core_.forward({.src = at[src],
                               .weights = at[weights],
                               .bias = at[bias],
                               .residual = at[residual],
                               .relu_mask = at[mask],
                               .transformed = behind,
                               .quantization = quantization(at),
                               .dst = at[dst]});
            },
            flops_);
    }

    // backward_data() as a step, with weights that it transforms itself.
    void add_backward_data(PyNetwork& network, const std::string& label,
                           const py::kwargs& values) const {
        require_backward();
        StepValues step(network, "conv2d_backward_data", label, values);
        const int diff_dst = step.operand("diff_dst", dst_);
        const int weights = step.operand("weights", weights_);
        const int diff_src = step.result("diff_src", src_);
        step.add(
            [=, this](const Addresses& at) {
                core_.backward_data(at[diff_dst], at[weights], at[diff_src]);
            },
            flops_);
    }

    // backward_weights() as a step, in float32.
    void add_backward_weights(PyNetwork& network, const std::string& label,
                              const py::kwargs& values) const {
        require_backward();
        StepValues step(network, "conv2d_backward_weights", label, values);
        const int src = step.operand("src", src_), diff_dst = step.operand("diff_dst", dst_);
        const Form& form = forms_["diff_weights"];
        const int diff_weights = step.result("diff_weights", form.written_whole());
        step.add(
            [=, this, dtype = form.dtype()](const Addresses& at) {
                core_.backward_weights(at[src], at[diff_dst], dtype, at[diff_weights]);
            },
            flops_);
    }

    py::tuple weights_shape(const std::string& form) const {
        return tuple_of(weights_form(form).form.shape());
    }

private:
    // Packed weights in one array: as the direct algorithm takes them, and behind them, from a
    // cache line on, the transformed ones of Winograd's passes, float32 in any dtype.
    struct WeightsForm {
        Form form;
        std::int64_t forward = 0;  // bytes to the transformed ones, 0 where they are not in it
        std::int64_t backward = 0;

        bool is_transformed() const { return forward + backward > 0; }
        float* part_in(Memory weights, std::int64_t at) const {
            return at == 0 ? nullptr : static_cast<float*>(Memory{weights.data + at});
        }
    };

    // With the weights of these passes that are Winograd's. Its name says the tiles, so that those
    // of another choice are refused.
    WeightsForm transformed(std::initializer_list<PassKind> passes) const {
        WeightsForm made{weights_};
        std::int64_t bytes = dlprim::aligned(weights_.layout().bytes());
        std::string packed_as = py::str(weights_.packed_as());
        for (const PassKind pass : passes) {
            if (core_.transformed_floats(pass) == 0) continue;
            packed_as += made.is_transformed() ? " and " : ", transformed for ";
            packed_as += std::string(name_of(pass)) + " in " + core_.algorithm(pass);
            (pass == PassKind::forward ? made.forward : made.backward) = bytes;
            bytes += core_.transformed_floats(pass) * size_of(DType::f32);
        }
        if (made.is_transformed()) {
            made.form = Form(weights_, bytes / size_of(weights_.dtype()), packed_as);
        }
        return made;
    }

    // Made when it is first asked for: that for all passes chooses how these run. The GIL is held.
    const WeightsForm& weights_form(std::size_t index) const {
        std::optional<WeightsForm>& known = weights_forms_.at(index);
        if (known) return *known;
        const PassKind forward = PassKind::forward, backward = PassKind::backward_data;
        if (index == 0) return known.emplace(transformed({}));
        if (index == 1) return known.emplace(transformed({forward}));
        return known.emplace(transformed({forward, backward}));
    }
    const WeightsForm& weights_form(const std::string& name) const {
        return weights_form(name == "direct" ? 0 : name == "forward" ? 1 : kAll);
    }

    // By the array's shape, by default the last; which tiles a flat one is for, it must say itself.
    const WeightsForm& weights_form_of(py::handle array) const {
        if (!py::isinstance<py::array>(array)) return weights_form(kAll);
        const auto given = py::reinterpret_borrow<py::array>(array);
        return weights_form_of_shape({given.shape(), given.shape() + given.ndim()});
    }
    const WeightsForm& weights_form_of_shape(const Shape& shape) const {
        for (std::size_t i = 0; i < kAll; ++i) {
            if (weights_form(i).form.shape() == shape) return weights_form(i);
        }
        return weights_form(kAll);
    }

    Memory weights_in(Call& call, py::handle array, const WeightsForm& it) const {
        const Memory data = call.operand("weights", array, it.form);
        if (it.is_transformed() && !packed_as(array)) {
            throw py::value_error(unnamed_weights(it));
        }
        return data;
    }
    static std::string unnamed_weights(const WeightsForm& it) {
        return "weights does not say how it was packed, expected what pack_weights returns: " +
               std::string(py::str(it.form.packed_as()));
    }

    const Form& relu_mask_ = forms_["relu_mask"];
    static constexpr std::size_t kAll = 2;
    mutable std::array<std::optional<WeightsForm>, kAll + 1> weights_forms_ = {};
};

}  // namespace

void register_conv2d(py::module_& module) {
    py::class_<PyConv2d> type(module, "Conv2d");
    type.def(py::init(&made_convolution<PyConv2d>))
        .def("forward", &PyConv2d::forward)
        .def("backward_data", &PyConv2d::backward_data)
        .def("backward_weights", &PyConv2d::backward_weights)
        .def("backward_activation", &PyConv2d::backward_activation)
        .def("pack_weights", &PyConv2d::pack_weights)
        .def("weights_shape", &PyConv2d::weights_shape)
        .def_property_readonly("algorithms", &algorithms<PyConv2d>)
        .def("algorithm",
             [](const PyConv2d& conv, const std::string& which) {
                 return conv.core().algorithm(parse_pass(kPassKinds, which));
             })
        .def_property_readonly("scratch_bytes",
                               [](const PyConv2d& conv) {
                                   const Conv2d& core = conv.core();
                                   py::dict bytes = scratch_by_pass(conv, core.passes());
                                   if (is_int8(core.spec().dtype)) return bytes;
                                   bytes["backward_relu"] = core.relu_scratch_bytes();
                                   return bytes;
                               })
        .def_property_readonly(
            "flops", [](const PyConv2d& conv) { return conv.core().spec().shape.flops(); });
    define_schedules(type, kPassKinds, scheduled_passes);
    define_forms(module, type);
    network_type(module)
        .def(
            "conv2d",
            [](PyNetwork& network, const PyConv2d& conv, const std::string& label,
               const py::object& quantized,
               const py::kwargs& values) { conv.add_to(network, label, quantized, values); },
            py::keep_alive<1, 2>(), py::arg("conv"), py::arg("label") = "", py::kw_only(),
            py::arg("quantized") = py::none())
        .def(
            "conv2d_backward_data",
            [](PyNetwork& network, const PyConv2d& conv, const std::string& label,
               const py::kwargs& values) { conv.add_backward_data(network, label, values); },
            py::keep_alive<1, 2>(), py::arg("conv"), py::arg("label") = "")
        .def(
            "conv2d_backward_weights",
            [](PyNetwork& network, const PyConv2d& conv, const std::string& label,
               const py::kwargs& values) { conv.add_backward_weights(network, label, values); },
            py::keep_alive<1, 2>(), py::arg("conv"), py::arg("label") = "");
    register_plain_conv2d(module);
}

}  // namespace dlprim::bindings
