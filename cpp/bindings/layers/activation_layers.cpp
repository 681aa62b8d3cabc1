#include <array>
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <pybind11/stl.h>

#include "bindings/primitives/primitive.h"
#include "bindings/register.h"
#include "primitives/conv/conv_layout.h"
#include "primitives/layers/batch_norm.h"
#include "primitives/layers/pooling.h"
#include "primitives/layers/resampling.h"

namespace dlprim::bindings {
namespace {

// Activations of fixed shape, type and layout: what every layer that works on packed arrays is made
// of.
class PyActivations {
public:
    // `shape` is (N, C, H, W); the channels lie in `groups` groups of blocks.
    PyActivations(const Shape& shape, std::int64_t groups, const std::string& dtype,
                  const std::string& layout)
        : PyActivations(shape, groups, parse_dtype(dtype),
                        layout == "NHWC" ? Format::nhwc : Format::blocked) {}

    const Activations& tensor() const { return tensor_; }
    Format layout() const { return layout_; }
    const Forms& forms() const { return forms_; }
    // One of another height and width.
    PyActivations resized(std::int64_t height, std::int64_t width) const {
        const Shape& shape = forms_["packed"].plain_shape();
        return {{shape[0], shape[1], height, width}, tensor_.blocks.groups, tensor_.dtype, layout_};
    }
    // The table of a layer: `packed` arrays, uint8 `masks` with a bit for each element of these,
    // and float32 arrays of a value `by_channel`.
    Forms table(std::initializer_list<const char*> packed, std::initializer_list<const char*> masks,
                std::initializer_list<const char*> by_channel) const {
        const TensorForm elements = form("");
        TensorForm bits{
            .name = "", .packed = {.dtype = DType::u8}, .packed_shape = elements.packed_shape};
        bits.packed_shape.back() = (bits.packed_shape.back() + 7) / 8;
        const TensorForm channels = plain_form("", DType::f32, {{'c', tensor_.blocks.total()}});
        std::vector<TensorForm> forms;
        const auto add = [&](const auto& names, TensorForm form) {
            for (const char* const name : names) {
                form.name = name;
                forms.push_back(form);
            }
        };
        add(packed, elements);
        add(masks, bits);
        add(by_channel, channels);
        return Forms(forms);
    }

private:
    PyActivations(const Shape& shape, std::int64_t groups, DType dtype, Format layout)
        : tensor_{.images = shape.at(0),
                  .height = shape.at(2),
                  .width = shape.at(3),
                  .blocks = channel_blocks(groups, shape.at(1) / groups),
                  .dtype = dtype},
          layout_(layout),
          forms_(table({"packed"}, {"relu_mask"}, {})) {}

    TensorForm form(const char* name) const {
        return activation_form(name,
                               {{{'n', tensor_.images},
                                 {'g', tensor_.blocks.groups},
                                 {'c', tensor_.blocks.channels},
                                 {'h', tensor_.height},
                                 {'w', tensor_.width}}},
                               tensor_.blocks, tensor_.dtype, layout_);
    }

    Activations tensor_;
    Format layout_;
    Forms forms_;
};

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

private:
    BatchNorm norm_;
    Forms forms_;
};

PoolingKind parse_kind(const std::string& name) {
    if (name == "max") return PoolingKind::max;
    return name == "average" ? PoolingKind::average : PoolingKind::average_padded;
}

class PyPooling {
public:
    static constexpr const char* kKind = "pool";

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

    // backward() as a step of a network. Of a maximum src is read again, for where it stands; y and
    // taps are memory for that.
    void add_backward(PyNetwork& network, const std::string& label,
                      const py::kwargs& values) const {
        StepValues step(network, "pool_backward", label, values);
        const bool is_max = pooling_.kind == PoolingKind::max;
        const int diff_dst = step.operand("diff_dst", dst_);
        const int src = is_max ? step.operand("src", src_) : -1;
        const int y = is_max ? step.result("y", dst_) : -1;
        const int taps = is_max ? step.result("taps", taps_()) : -1;
        const int diff_src = step.result("diff_src", src_);
        step.add([=, this](const Addresses& at) {
            if (taps >= 0) forward_({.src = at[src], .dst = at[y], .taps_out = at[taps]});
            backward_({.src = at[diff_dst], .dst = at[diff_src], .taps = at[taps]});
        });
    }

    const Shape& dst_shape() const { return dst_.shape(); }
    const Form& src() const { return src_; }
    const Form& dst() const { return dst_; }
    const Resampling& pass() const { return forward_; }

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
    static constexpr const char* kKind = "resample";

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

    const Shape& dst_shape() const { return dst_.shape(); }
    const Form& src() const { return src_; }
    const Form& dst() const { return dst_; }
    const Resampling& pass() const { return resampling_; }

private:
    static PyActivations resized(const Windows& windows, const PyActivations& src) {
        return src.resized(windows.rows.results(), windows.columns.results());
    }

    Resampling resampling_;
    Form src_;
    Form dst_;
};

// forward() as a step of a network, without indices.
template <class Bound>
void add_resampling(PyNetwork& network, const Bound& of, int src, int dst,
                    const std::string& label) {
    const py::dict values(py::arg("src") = src, py::arg("dst") = dst);
    StepValues step(network, Bound::kKind, label, values);
    step.operand("src", of.src());
    step.result("dst", of.dst());
    step.add([src, dst, &pass = of.pass()](const Addresses& at) {
        pass({.src = at[src], .dst = at[dst]});
    });
}

}  // namespace

void register_activation_layers(py::module_& module) {
    py::class_<PyActivations> activations(module, "Activations");
    activations.def(py::init<const Shape&, std::int64_t, const std::string&, const std::string&>());
    define_forms(module, activations);
    py::class_<PyBatchNorm>(module, "BatchNorm")
        .def(py::init<const PyActivations&, bool, float>())
        .def("forward", &PyBatchNorm::forward)
        .def("backward", &PyBatchNorm::backward);
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
    network_type(module)
        .def("pool", &add_resampling<PyPooling>, py::keep_alive<1, 2>(), py::arg("pooling"),
             py::arg("src"), py::arg("dst"), py::arg("label") = "")
        .def(
            "pool_backward",
            [](PyNetwork& network, const PyPooling& pooling, const std::string& label,
               const py::kwargs& values) { pooling.add_backward(network, label, values); },
            py::keep_alive<1, 2>(), py::arg("pooling"), py::arg("label") = "")
        .def("resample", &add_resampling<PyResampling>, py::keep_alive<1, 2>(),
             py::arg("resampling"), py::arg("src"), py::arg("dst"), py::arg("label") = "");
}

}  // namespace dlprim::bindings
