#include <array>
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <pybind11/stl.h>

#include "bindings/layers/activations.h"
#include "bindings/register.h"
#include "primitives/layers/activation_backward.h"
#include "primitives/layers/pooling.h"
#include "primitives/layers/resampling.h"
#include "primitives/tensor/workspace.h"

namespace dlprim::bindings {
namespace {

// relu's gradient, by what it made or by the bits of what it let through, and the sums of that by
// channel, as a step of a network; sums alone where there is nothing of relu.
void add_relu_backward(PyNetwork& network, const PyActivations& of, const std::string& label,
                       const py::kwargs& values) {
    StepValues step(network, "relu_backward", label, values);
    const Form& packed = of.forms()["packed"];
    const Activations& tensor = of.tensor();
    const Shape channels = {tensor.blocks.total()};
    const int diff_dst = step.operand("diff_dst", packed), dst = step.optional("dst", packed);
    const int relu_mask = step.optional("relu_mask", of.forms()["relu_mask"]);
    // Of a single pixel the sums are as large, and would lie there, too.
    const bool is_single = tensor.images * tensor.height * tensor.width == 1;
    int diff_src = -1, diff_bias = -1;
    if (step.number("diff_src") >= 0) {
        diff_src = step.result("diff_src", packed, {is_single ? -1 : diff_dst});
    }
    if (step.number("diff_bias") >= 0) {
        diff_bias = step.result("diff_bias", {DType::f32, channels});
    }
    const bool has_relu = dst >= 0 || relu_mask >= 0;
    step.add([=, layout = of.layout()](const Addresses& at) {
        const ActivationBackward problem{
            .tensor = tensor,
            .layout = layout,
            .activation = has_relu ? Activation::relu : Activation::none,
            .diff_dst = at[diff_dst],
            .saved = at[dst],
            .relu_mask = at[relu_mask],
            .out = at[diff_src],
            .diff_bias = at[diff_bias]};
        const std::int64_t bytes =
            diff_bias < 0 ? 0 : activation_backward_scratch_bytes(tensor, layout);
        const WorkspacePool::Lease scratch(WorkspacePool::lasting(), bytes);
        activation_backward(problem, scratch.data());
    });
}

PoolingKind parse_kind(const std::string& name) {
    if (name == "max") return PoolingKind::max;
    return name == "average" ? PoolingKind::average : PoolingKind::average_padded;
}

class PyPooling {
public:
    // `window`: kernel, stride and padding, each (height, width).
    PyPooling(const PyActivations& src, const std::string& kind,
              const std::array<std::int64_t, 6>& window)
        : pooling_{.src = src.tensor(),
                   .layout = src.layout(),
                   .kind = parse_kind(kind),
                   .R = window[0],
                   .S = window[1],
                   .stride_h = window[2],
                   .stride_w = window[3],
                   .pad_h = window[4],
                   .pad_w = window[5]},
          src_(src.forms()["packed"]),
          dst_(validated(pooling_, src).forms()["packed"]),
          forward_(pool_forward(pooling_)),
          backward_(pool_backward(pooling_)) {}

    py::object forward(py::handle src, py::handle out, py::handle indices) const {
        Call call;
        const Memory from = call.operand("src", src, src_);
        const Written dst = call.result("out", out, dst_, src);
        const Memory taps = call.optional_result("indices", indices, taps_()).data;
        call.run([&] { forward_({.src = from, .dst = dst.data, .taps_out = taps}); });
        return dst.array;
    }

    py::object backward(py::handle diff_dst, py::handle indices, py::handle out) const {
        if (indices.is_none() == (pooling_.kind == PoolingKind::max)) {
            throw py::value_error("indices are expected of maximum pooling, and of no other");
        }
        Call call;
        const Memory from = call.operand("diff_dst", diff_dst, dst_);
        const Memory taps = call.optional("indices", indices, taps_());
        const Written diff_src = call.result("out", out, src_, diff_dst);
        call.run([&] { backward_({.src = from, .dst = diff_src.data, .taps = taps}); });
        return diff_src.array;
    }

    // forward() as a step of a network; with taps, where maxima stand.
    void add_to(PyNetwork& network, const std::string& label, const py::kwargs& values) const {
        StepValues step(network, "pool", label, values);
        const int src = step.operand("src", src_), dst = step.result("dst", dst_);
        const int taps = step.number("taps") < 0 ? -1 : step.result("taps", taps_());
        step.add([=, this](const Addresses& at) {
            forward_({.src = at[src], .dst = at[dst], .taps_out = at[taps]});
        });
    }

    // backward() as a step, of a maximum with the taps that forward() has written.
    void add_backward(PyNetwork& network, const std::string& label,
                      const py::kwargs& values) const {
        StepValues step(network, "pool_backward", label, values);
        const bool is_max = pooling_.kind == PoolingKind::max;
        const int diff_dst = step.operand("diff_dst", dst_);
        const int taps = is_max ? step.operand("taps", taps_()) : -1;
        const int diff_src = step.result("diff_src", src_);
        step.add([=, this](const Addresses& at) {
            backward_({.src = at[diff_dst], .dst = at[diff_src], .taps = at[taps]});
        });
    }

    const Shape& dst_shape() const { return dst_.shape(); }

private:
    static PyActivations validated(const Pooling& pooling, const PyActivations& src) {
        validate(pooling);
        return src.resized(pooling.P(), pooling.Q());
    }
    // Of the indices, one for each element of dst.
    Expected taps_() const { return {DType::u8, dst_.shape()}; }

    Pooling pooling_;
    Form src_;
    Form dst_;
    Resampling forward_;
    Resampling backward_;
};

// Begins, places and weights of an axis.
using Table = std::tuple<std::vector<std::int64_t>, std::vector<std::int64_t>, std::vector<float>>;

AxisWindows windows_of(Table table) { return std::make_from_tuple<AxisWindows>(std::move(table)); }

class PyResampling {
public:
    PyResampling(const PyActivations& src, Table rows, Table columns)
        : resampling_({.src = src.tensor(),
                       .layout = src.layout(),
                       .rows = windows_of(std::move(rows)),
                       .columns = windows_of(std::move(columns))},
                      Fold::sum),
          src_(src.forms()["packed"]),
          dst_(resized(resampling_.windows(), src).forms()["packed"]) {}

    py::object forward(py::handle src, py::handle out) const {
        Call call;
        const Memory from = call.operand("src", src, src_);
        const Written dst = call.result("out", out, dst_, src);
        call.run([&] { resampling_({.src = from, .dst = dst.data}); });
        return dst.array;
    }

    // forward() as a step of a network.
    void add_to(PyNetwork& network, int src, int dst, const std::string& label) const {
        const py::dict values(py::arg("src") = src, py::arg("dst") = dst);
        StepValues step(network, "resample", label, values);
        step.operand("src", src_);
        step.result("dst", dst_);
        step.add([=, this](const Addresses& at) { resampling_({.src = at[src], .dst = at[dst]}); });
    }

    const Shape& dst_shape() const { return dst_.shape(); }

private:
    static PyActivations resized(const Windows& windows, const PyActivations& src) {
        return src.resized(windows.rows.results(), windows.columns.results());
    }

    Resampling resampling_;
    Form src_;
    Form dst_;
};

}  // namespace

void register_activation_layers(py::module_& module) {
    py::class_<PyActivations> activations(module, "Activations");
    activations.def(py::init<const Shape&, std::int64_t, const std::string&, const std::string&>());
    define_forms(module, activations);
    register_batch_norm(module);
    py::class_<PyPooling>(module, "Pooling")
        .def(py::init<const PyActivations&, const std::string&,
                      const std::array<std::int64_t, 6>&>())
        .def("forward", &PyPooling::forward)
        .def("backward", &PyPooling::backward)
        .def_property_readonly("dst_shape",
                               [](const PyPooling& it) { return tuple_of(it.dst_shape()); });
    py::class_<PyResampling>(module, "Resampling")
        .def(py::init<const PyActivations&, Table, Table>())
        .def("forward", &PyResampling::forward)
        .def_property_readonly("dst_shape",
                               [](const PyResampling& it) { return tuple_of(it.dst_shape()); });
    using Values = const py::kwargs&;
    network_type(module)
        .def(
            "relu_backward",
            [](PyNetwork& network, const PyActivations& of, const std::string& label,
               Values values) { add_relu_backward(network, of, label, values); },
            py::arg("of"), py::arg("label") = "")
        .def(
            "pool",
            [](PyNetwork& network, const PyPooling& pooling, const std::string& label,
               Values values) { pooling.add_to(network, label, values); },
            py::keep_alive<1, 2>(), py::arg("pooling"), py::arg("label") = "")
        .def(
            "pool_backward",
            [](PyNetwork& network, const PyPooling& pooling, const std::string& label,
               Values values) { pooling.add_backward(network, label, values); },
            py::keep_alive<1, 2>(), py::arg("pooling"), py::arg("label") = "")
        .def(
            "resample",
            [](PyNetwork& network, const PyResampling& resampling, int src, int dst,
               const std::string& label) { resampling.add_to(network, src, dst, label); },
            py::keep_alive<1, 2>(), py::arg("resampling"), py::arg("src"), py::arg("dst"),
            py::arg("label") = "");
}

}  // namespace dlprim::bindings
