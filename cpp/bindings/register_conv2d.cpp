#include <string>
#include <vector>

#include <pybind11/stl.h>

#include "bindings/conv2d.h"
#include "bindings/register.h"
#include "bindings/schedules.h"

namespace dlprim::bindings {
namespace {

template <const Shape& (PyConv2d::*shape)() const>
py::tuple tuple_from(const PyConv2d& conv) {
    return py::tuple(py::cast((conv.*shape)()));
}

std::vector<PassKind> all_passes(const PyConv2d&) { return {kPassKinds.begin(), kPassKinds.end()}; }

std::vector<PassKind> scheduled_passes(const PyConv2d& conv) {
    if (conv.core().spec().shape.is_depthwise()) return {};
    return all_passes(conv);
}

// Of the passes, and of the gradient through relu.
py::dict scratch_bytes(const PyConv2d& conv) {
    py::dict bytes;
    for (const PassKind pass : kPassKinds) {
        bytes[py::str(std::string(name_of(pass)))] = conv.core().scratch_bytes(pass);
    }
    bytes[py::str("backward_relu")] = conv.core().relu_scratch_bytes();
    return bytes;
}

// The algorithm of each pass: "direct", or "winograd" and the size of its tiles.
py::dict algorithms(const PyConv2d& conv) {
    py::dict names;
    for (const PassKind pass : kPassKinds) {
        names[py::str(std::string(name_of(pass)))] = conv.core().winograd().name(pass);
    }
    return names;
}

}  // namespace

void register_conv2d(py::module_& module) {
    py::class_<PyConv2d> type(module, "Conv2d");
    type.def(py::init([](const Shape& shape, std::string dtype, std::string layout,
                         std::string activation, bool bias, std::string algorithm,
                         bool high_accuracy) {
                 return std::make_unique<PyConv2d>(
                     shape,
                     PyConv2d::Options{std::move(dtype), std::move(layout), std::move(activation),
                                       bias, std::move(algorithm), high_accuracy});
             }),
             py::arg("shape"), py::arg("dtype"), py::arg("layout"), py::arg("activation"),
             py::arg("bias"), py::arg("algorithm"), py::arg("high_accuracy"))
        .def_property_readonly("algorithms", &algorithms)
        .def_property_readonly("direct_weights_shape", &tuple_from<&PyConv2d::direct_weights_shape>)
        .def_property_readonly("forward_weights_shape",
                               &tuple_from<&PyConv2d::forward_weights_shape>)
        .def("forward", &PyConv2d::forward, py::arg("src"), py::arg("weights"), py::arg("bias"),
             py::arg("residual"), py::arg("relu_mask"), py::arg("out"))
        .def("backward_data", &PyConv2d::backward_data, py::arg("diff_dst"), py::arg("weights"),
             py::arg("out"))
        .def("backward_weights", &PyConv2d::backward_weights, py::arg("src"), py::arg("diff_dst"),
             py::arg("out"))
        .def("backward_relu", &PyConv2d::backward_relu, py::arg("diff_dst"), py::arg("dst"),
             py::arg("relu_mask"), py::arg("out"), py::arg("diff_bias"))
        .def("pack_src", &PyConv2d::pack_src, py::arg("x"), py::arg("out"))
        .def("pack_diff_dst", &PyConv2d::pack_diff_dst, py::arg("dy"), py::arg("out"))
        .def("unpack_dst", &PyConv2d::unpack_dst, py::arg("dst"), py::arg("out"))
        .def("unpack_diff_src", &PyConv2d::unpack_diff_src, py::arg("d"), py::arg("out"))
        .def("pack_weights", &PyConv2d::pack_weights, py::arg("w"), py::arg("out"))
        .def("unpack_diff_weights", &PyConv2d::unpack_diff_weights, py::arg("dw"), py::arg("out"))
        .def_property_readonly("src_shape", tuple_from<&PyConv2d::src_shape>)
        .def_property_readonly("weights_shape", tuple_from<&PyConv2d::weights_shape>)
        .def_property_readonly("dst_shape", tuple_from<&PyConv2d::dst_shape>)
        .def_property_readonly("diff_weights_shape", tuple_from<&PyConv2d::diff_weights_shape>)
        .def_property_readonly("relu_mask_shape", tuple_from<&PyConv2d::relu_mask_shape>)
        .def_property_readonly(
            "flops", [](const PyConv2d& conv) { return conv.core().spec().shape.flops(); });
    define_schedules(type, all_passes, scheduled_passes);
    type.def_property_readonly("scratch_bytes", scratch_bytes);
}

}  // namespace dlprim::bindings
