#include <memory>
#include <string>

#include <pybind11/stl.h>

#include "bindings/primitives/conv_binding.h"
#include "bindings/primitives/primitive.h"
#include "primitives/conv/plain_conv.h"
#include "primitives/volumes/image_conv.h"

namespace dlprim::bindings {
namespace {

// On plain arrays, which the caller made or checked.
class PyPlainConv2d {
public:
    explicit PyPlainConv2d(const ConvSpec& spec) : core_(spec), forms_(conv_forms_of(spec)) {}

    const Conv2d& core() const { return core_.on_blocks().of_portion(); }
    Conv2d& core() { return core_.on_blocks().of_portion(); }
    std::int64_t portion_images() const { return core_.on_blocks().portion_images(); }

    // y, of the layout's shape.
    py::tuple result_shape() const { return tuple_of(dst_.shape); }

    // y, or a new array where it is None.
    py::object forward(py::handle x, py::handle w, py::handle bias, py::handle residual,
                       py::handle y) const {
        Call call;
        ConvForward tensors{.src = call.operand("x", x, src_),
                            .weights = call.operand("w", w, filter_),
                            .bias = call.optional("bias", bias, bias_),
                            .residual = call.optional("residual", residual, dst_)};
        const Written dst = call.result("out", y, dst_, x);
        tensors.dst = dst.data;
        call.run([&] { core_.forward(tensors); }, flops_);
        return dst.array;
    }

    // (dx, dw, db); y is None where there was no activation.
    py::tuple backward(py::handle dy, py::handle x, py::handle w, py::handle y) const {
        Call call;
        PlainConvGradients tensors{.diff_dst = call.operand("dy", dy, dst_),
                                   .src = call.operand("x", x, src_),
                                   .weights = call.operand("w", w, filter_),
                                   .saved = call.optional("y", y, dst_)};
        const Written dx = call.result("dx", py::none(), src_, x);
        const Written dw = call.result("dw", py::none(), filter_, w);
        const Written db = call.result("db", py::none(), bias_);
        tensors.diff_src = dx.data;
        tensors.diff_weights = dw.data;
        tensors.diff_bias = db.data;
        call.run([&] { core_.backward(tensors); }, flops_);
        return py::make_tuple(dx.array, dw.array, db.array);
    }

    // The gradient of x alone, written to dx.
    void backward_data(py::handle dy, py::handle w, py::handle dx) const {
        Call call;
        const PlainConvGradients tensors{.diff_dst = call.operand("dy", dy, dst_),
                                         .weights = call.operand("w", w, filter_),
                                         .diff_src = call.result("out", dx, src_).data};
        call.run([&] { core_.backward(tensors); }, flops_);
    }

    // (dw, db) alone.
    py::tuple backward_weights(py::handle dy, py::handle x) const {
        Call call;
        PlainConvGradients tensors{.diff_dst = call.operand("dy", dy, dst_),
                                   .src = call.operand("x", x, src_)};
        const Written dw = call.result("dw", py::none(), filter_, x);
        const Written db = call.result("db", py::none(), bias_);
        tensors.diff_weights = dw.data;
        tensors.diff_bias = db.data;
        call.run([&] { core_.backward(tensors); }, flops_);
        return py::make_tuple(dw.array, db.array);
    }

    // forward() as a step of a network.
    void add_to(PyNetwork& network, const std::string& label, const py::kwargs& values) const {
        StepValues step(network, "plain_conv2d", label, values);
        const int x = step.operand("x", src_), w = step.operand("w", filter_);
        const int bias = step.optional("bias", bias_), residual = step.optional("residual", dst_);
        const int y = step.result("y", dst_);
        step.add(
            [=, this](const Addresses& at) {
                core_.forward({.src = at[x],
                               .weights = at[w],
                               .bias = at[bias],
                               .residual = at[residual],
                               .dst = at[y]});
            },
            flops_);
    }

    // backward() as a step: the gradient of x from w, or those of w and the bias from x.
    void add_backward(PyNetwork& network, const std::string& label,
                      const py::kwargs& values) const {
        StepValues step(network, "plain_conv2d_backward", label, values);
        const int dy = step.operand("dy", dst_);
        const bool of_weights = step.number("dw") >= 0;
        const int x = of_weights ? step.operand("x", src_) : -1;
        const int w = of_weights ? -1 : step.operand("w", filter_);
        const int dx = of_weights ? -1 : step.result("dx", src_);
        const int dw = of_weights ? step.result("dw", filter_) : -1;
        const int db = of_weights ? step.result("db", bias_) : -1;
        step.add(
            [=, this](const Addresses& at) {
                core_.backward({.diff_dst = at[dy],
                                .src = at[x],
                                .weights = at[w],
                                .diff_src = at[dx],
                                .diff_weights = at[dw],
                                .diff_bias = at[db]});
            },
            flops_);
    }

private:
    // Channels-last, or (N, C, H, W).
    Expected images(std::string_view name) const {
        const Form& form = forms_[name];
        const bool flat = core_.on_blocks().spec().layout == Format::nhwc;
        return {form.dtype(), flat ? form.shape() : form.plain_shape()};
    }

    ImageConv core_;
    Forms forms_;
    double flops_ = core_.on_blocks().spec().shape.flops();
    const Expected src_ = images("src");
    const Expected dst_ = images("dst");
    const Expected filter_ = forms_["weights"].plain();
    const Expected bias_ = forms_["bias"].plain();
};

}  // namespace

void register_plain_conv2d(py::module_& module) {
    using Values = const py::kwargs&;
    py::class_<PyPlainConv2d> plain(module, "PlainConv2d");
    plain.def(py::init(&made_convolution<PyPlainConv2d>))
        .def("forward", &PyPlainConv2d::forward)
        .def("backward", &PyPlainConv2d::backward)
        .def("backward_data", &PyPlainConv2d::backward_data)
        .def("backward_weights", &PyPlainConv2d::backward_weights)
        .def_property_readonly("result_shape", &PyPlainConv2d::result_shape)
        .def_property_readonly("portion_images", &PyPlainConv2d::portion_images)
        .def_property_readonly("algorithms", &algorithms<PyPlainConv2d>);
    define_schedules(plain, kPassKinds, scheduled_passes);
    network_type(module)
        .def(
            "plain_conv2d",
            [](PyNetwork& network, const PyPlainConv2d& conv, const std::string& label,
               Values values) { conv.add_to(network, label, values); },
            py::keep_alive<1, 2>(), py::arg("conv"), py::arg("label") = "")
        .def(
            "plain_conv2d_backward",
            [](PyNetwork& network, const PyPlainConv2d& conv, const std::string& label,
               Values values) { conv.add_backward(network, label, values); },
            py::keep_alive<1, 2>(), py::arg("conv"), py::arg("label") = "");
}

}  // namespace dlprim::bindings
