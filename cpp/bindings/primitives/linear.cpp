#include "primitives/linear/linear.h"

#include <memory>
#include <string>

#include "bindings/primitives/primitive.h"
#include "bindings/register.h"
#include "primitives/tensor/reorder.h"

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

class PyLinear : public Primitive<Linear> {
public:
    explicit PyLinear(const LinearSpec& spec) : Primitive(spec, &forms_of) {}

    py::object forward(py::handle src, py::handle weights, py::handle bias, py::handle scale,
                       py::handle before_activation, py::handle out) const {
        Call call;
        LinearForward tensors{.src = call.operand("src", src, src_),
                              .weights = call.operand("weights", weights, weights_form_of(weights)),
                              .bias = bias_in(call, bias, "layer"),
                              .scale = call.optional_floats("scale", scale, bias_)};
        if (is_int8(dtype()) != (tensors.scale != nullptr)) {
            throw py::value_error(tensors.scale != nullptr
                                      ? "scale was given, but the layer is of dtype " +
                                            std::string(name_of(dtype())) + ", expected 8 bits"
                                      : "scale is missing: 8-bit products are multiplied by it");
        }
        const Written dst = call.result("out", out, dst_, src);
        tensors.dst = dst.data;
        tensors.before_activation =
            call.optional_result("before_activation", before_activation, dst_).data;
        call.run([&] { core_.forward(tensors); });
        return dst.array;
    }

    py::object backward_data(py::handle diff_dst, py::handle weights, py::handle out) const {
        require_backward();
        Call call;
        const char* const gradient = call.operand("diff_dst", diff_dst, dst_);
        const char* const matrix =
            call.operand("weights", weights, weights_) + weights_.layout().bytes();
        const Written diff_src = call.result("out", out, src_, diff_dst);
        call.run([&] { core_.backward_data(gradient, matrix, diff_src.data); });
        return diff_src.array;
    }

    py::object backward_weights(py::handle src, py::handle diff_dst, py::handle out,
                                bool narrow) const {
        require_backward();
        return Primitive::backward_weights(src, diff_dst, out, narrow);
    }

    // The gradients in front of the activation, diff_dst itself where there is none, and of the
    // bias.
    py::object backward_activation(py::handle diff_dst, py::handle saved, py::handle out,
                                   py::handle diff_bias) const {
        require_backward();
        const bool activates = spec().activation != Activation::none;
        if (activates && saved.is_none()) {
            throw py::value_error("saved is missing: the activation of the layer is " +
                                  std::string(name_of(spec().activation)));
        }
        Call call;
        ActivationBackward problem{.diff_dst = call.operand("diff_dst", diff_dst, dst_)};
        if (activates) problem.saved = call.operand("saved", saved, dst_);
        Written passed;
        if (activates || !out.is_none()) {
            passed = call.result("out", out, dst_, diff_dst, {problem.diff_dst});
        }
        problem.out = passed.data;
        const Written total = call.result("diff_bias", diff_bias, bias_);
        problem.diff_bias = total.floats();
        call.run([&] { core_.backward_activation(problem); });
        return py::make_tuple(passed.array ? py::handle(passed.array) : diff_dst, total.array);
    }

    // Where there is an `out`, its shape says whether there is a backward form.
    py::object pack_weights(py::handle w, py::handle out, bool backward) const {
        const Form& to = !out.is_none() ? weights_form_of(out)
                         : backward     ? weights_
                                        : forward_weights_;
        Call call;
        const Layout from = plain_layout_of(to, w);
        const char* const source = call.operand("w", w, Expected{from.dtype, to.plain_shape()});
        const Written packed = call.result("out", out, to.written_whole(), w);
        call.run([&] {
            reorder(from, source, to.layout(), packed.data);
            if (to.shape().front() == 1) return;
            reorder(from, source, forms_["backward_weights"].layout(),
                    packed.data + to.layout().bytes());
        });
        return packed.array;
    }

private:
    const LinearSpec& spec() const { return core_.spec(); }
    DType dtype() const { return spec().dtype; }

    const Form& weights_form_of(py::handle array) const {
        return has_shape(array, forward_weights_.shape()) ? forward_weights_ : weights_;
    }

    void require_backward() const {
        if (core_.has_backward()) return;
        throw py::type_error("the layer is of dtype " + std::string(name_of(dtype())) +
                             ", which has the forward pass alone");
    }

    const Form& forward_weights_ = forms_["forward_weights"];
};

std::unique_ptr<PyLinear> make_linear(const py::sequence& shape, const std::string& dtype,
                                      const std::string& dst_dtype, const std::string& layout,
                                      const std::string& activation, bool bias) {
    const Shape values = shape_from(shape);
    if (values.size() != 3) {
        throw py::value_error("shape has " + std::to_string(values.size()) +
                              " values, expected N, C and K");
    }
    return std::make_unique<PyLinear>(
        LinearSpec{.shape = {.N = values[0], .C = values[1], .K = values[2]},
                   .dtype = parse_dtype(dtype),
                   .dst_dtype = parse_dtype(dst_dtype),
                   .layout = layout == "plain" ? Format::nhwc : Format::blocked,
                   .activation = parse_activation(activation),
                   .bias = bias});
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
    define_forms(type);
}

}  // namespace dlprim::bindings
