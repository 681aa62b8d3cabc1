// Weights in panels as an array of bytes, and linear layers on them. An x that is as it should be,
// which is what nearly every call brings, is recognised here in a few comparisons; for all others
// the result is None, and the caller in Python converts what can be converted and says what is
// wrong with the rest.
#include "primitives/linear/panel_linear.h"

#include <memory>
#include <optional>
#include <string>

#include "bindings/arrays/call.h"
#include "bindings/graph/network.h"
#include "bindings/register.h"
#include "brgemm/spec.h"

namespace dlprim::bindings {
namespace {

using Layer = std::unique_ptr<PanelLinear>;

// Of what is only stored, too.
DType type_named(const std::string& name) {
    return name == name_of(DType::f16) ? DType::f16 : parse_dtype(name);
}

Layer make_layer(const std::pair<std::int64_t, std::int64_t>& shape, int bits, int group,
                 bool zero_points, const std::string& scales, int x_bits) {
    const PanelFormat format{.bits = static_cast<std::uint8_t>(bits),
                             .group = static_cast<std::uint8_t>(group),
                             .zero_points = zero_points,
                             .scales = type_named(scales)};
    return std::make_unique<PanelLinear>(format, shape.first, shape.second, x_bits);
}

// Two bytes of any float come as their bits.
DType stored_as(DType dtype) { return dtype == DType::f16 ? DType::bf16 : dtype; }

Shape packed_shape(const PanelLinear& it) { return {it.weight_bytes()}; }

// Rows of the matrix may lie anyhow.
py::object pack_weights(const PanelLinear& it, py::handle w, const std::string& dtype) {
    Call call;
    const Shape shape{it.K(), it.C()}, packed = packed_shape(it);
    const DType type = type_named(dtype);
    const Memory weights = call.operand("w", w, {stored_as(type), shape});
    const Written made = call.result("out", py::none(), {DType::u8, packed});
    bool finite = true;
    call.run([&] {
        finite = it.pack(PlainWeights{.data = weights, .dtype = type, .row = it.C(), .C = it.C()},
                         made.data);
    });
    return finite ? made.array : py::none();
}

py::object pack_given(const PanelLinear& it, py::handle q, py::handle scales,
                      py::handle zero_points) {
    Call call;
    const Shape shape{it.K(), it.C()}, of_groups{it.K(), it.format().groups(it.C())},
        packed = packed_shape(it);
    const Memory weights = call.operand("q", q, {DType::u8, shape});
    const Memory scaling =
        call.operand("scales", scales, {stored_as(it.format().scales), of_groups});
    const Memory zeros = call.optional("zero_points", zero_points, {DType::u8, of_groups});
    const Written made = call.result("out", py::none(), {DType::u8, packed});
    call.run([&] {
        it.pack(GivenWeights{.weights = weights,
                             .scales = static_cast<const void*>(scaling.data),
                             .zero_points = zeros,
                             .C = it.C()},
                made.data);
    });
    return made.array;
}

py::object unpack_weights(const PanelLinear& it, py::handle packed) {
    Call call;
    const Shape shape{it.K(), it.C()}, bytes = packed_shape(it);
    const Memory weights = call.operand("weights", packed, {DType::u8, bytes});
    const Written made = call.result("out", py::none(), {DType::f32, shape});
    call.run([&] { it.unpack(weights, made.data); });
    return made.array;
}

// The type of an x that can be used as it is.
std::optional<DType> type_of_rows(const PanelLinear& it, py::handle x, bool bits) {
    if (Py_TYPE(x.ptr()) != py::detail::npy_api::get().PyArray_Type_) return {};
    const auto array = py::reinterpret_borrow<py::array>(x);
    const int needed = py::array::c_style | int{py::detail::npy_api::NPY_ARRAY_ALIGNED_};
    if ((array.flags() & needed) != needed) return {};
    if (array.ndim() == 0 || array.shape(array.ndim() - 1) != it.C()) return {};
    const std::optional<DType> dtype = float_type_of(array);
    if (dtype == DType::bf16 && !bits && py::isinstance<py::array_t<std::uint16_t>>(array)) {
        return {};
    }
    return dtype;
}

py::object forward(const PanelLinear& it, py::handle packed, py::handle x, py::handle bias,
                   const std::string& activation, py::handle out, bool bits) {
    const std::optional<DType> dtype = type_of_rows(it, x, bits);
    if (!dtype) return py::none();
    const auto rows = py::reinterpret_borrow<py::array>(x);
    const Shape src_shape(rows.shape(), rows.shape() + rows.ndim());
    Shape dst_shape = src_shape;
    dst_shape.back() = it.K();
    const Shape bytes = packed_shape(it), channels{it.K()};
    Call call;
    PanelLinearForward tensors{.dtype = *dtype,
                               .N = elements_of(dst_shape) / std::max<std::int64_t>(it.K(), 1),
                               .activation = parse_activation(activation)};
    tensors.src = static_cast<const void*>(call.operand("x", x, {*dtype, src_shape}).data);
    tensors.weights = call.operand("w", packed, {DType::u8, bytes});
    tensors.bias = call.optional("bias", bias, {DType::f32, channels});
    const Written made = call.result("out", out, {*dtype, dst_shape}, x);
    tensors.dst = made.data;
    call.run([&] { it.forward(tensors); }, it.flops(tensors.N));
    return made.array;
}

// forward() as a step of a network, of as many rows as src has.
void add_panel_linear(PyNetwork& network, const PanelLinear& it, const std::string& activation,
                      const std::string& label, const py::kwargs& values) {
    StepValues step(network, "panel_linear", label, values);
    const NetworkTensor& x = step.tensor("src");
    const DType dtype = parse_dtype(x.dtype);
    const Shape src_shape(x.shape.begin(), x.shape.end());
    if (src_shape.empty() || src_shape.back() != it.C()) step.refuse("src has not C channels");
    if (dtype != DType::f32 && dtype != DType::bf16) step.refuse("src is of no float");
    Shape dst_shape = src_shape;
    dst_shape.back() = it.K();
    const Shape bytes = packed_shape(it), channels{it.K()};
    const int src = step.operand("src", {dtype, src_shape});
    const int weights = step.operand("weights", {DType::u8, bytes});
    const int bias = step.optional("bias", {DType::f32, channels});
    const int dst = step.result("dst", {dtype, dst_shape});
    const PanelLinearForward form{.dtype = dtype,
                                  .N = elements_of(src_shape) / std::max<std::int64_t>(it.C(), 1),
                                  .activation = parse_activation(activation)};
    step.add(
        [=, &it](const Addresses& at) {
            PanelLinearForward tensors = form;
            tensors.src = at[src];
            tensors.weights = static_cast<const char*>(at[weights]);
            tensors.bias = at[bias];
            tensors.dst = at[dst];
            it.forward(tensors);
        },
        it.flops(form.N));
}

}  // namespace

void register_panel_linear(py::module_& module) {
    py::class_<PanelLinear>(module, "PanelLinear")
        .def(py::init(&make_layer), py::arg("shape"), py::arg("bits"), py::arg("group"),
             py::arg("zero_points"), py::arg("scales"), py::arg("x_bits"))
        .def_property_readonly("bytes", &PanelLinear::weight_bytes)
        .def("pack", &pack_weights, py::arg("w"), py::arg("dtype"))
        .def("pack_given", &pack_given, py::arg("q"), py::arg("scales"), py::arg("zero_points"))
        .def("unpack", &unpack_weights, py::arg("packed"))
        .def("forward", &forward, py::arg("packed"), py::arg("x"), py::arg("bias"),
             py::arg("activation"), py::arg("out"), py::arg("bits"));
    network_type(module).def("panel_linear", &add_panel_linear, py::keep_alive<1, 2>(),
                             py::arg("layer"), py::arg("activation"), py::arg("label") = "");
}

}  // namespace dlprim::bindings
