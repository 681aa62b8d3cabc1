#include <string>
#include <vector>

#include <pybind11/stl.h>

#include "bindings/conv2d.h"
#include "bindings/register.h"
#include "bindings/schedules.h"

namespace dlprim::bindings {
namespace {

template <const Shape& (PyConv2d::*shape)() const>
py::tuple tuple_of(const PyConv2d& conv) {
    return py::tuple(py::cast((conv.*shape)()));
}

std::vector<Pass> all_passes(const PyConv2d&) { return {kPasses.begin(), kPasses.end()}; }

std::vector<Pass> scheduled_passes(const PyConv2d& conv) {
    if (conv.core().spec().shape.is_depthwise()) return {};
    return all_passes(conv);
}

}  // namespace

void register_conv2d(py::module_& module) {
    py::class_<PyConv2d> type(module, "Conv2d");
    type.def(py::init<const Shape&, const std::string&, const std::string&, const std::string&,
                      bool>(),
             py::arg("shape"), py::arg("dtype"), py::arg("layout"), py::arg("activation"),
             py::arg("bias"))
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
        .def_property_readonly("src_shape", tuple_of<&PyConv2d::src_shape>)
        .def_property_readonly("weights_shape", tuple_of<&PyConv2d::weights_shape>)
        .def_property_readonly("dst_shape", tuple_of<&PyConv2d::dst_shape>)
        .def_property_readonly("diff_weights_shape", tuple_of<&PyConv2d::diff_weights_shape>)
        .def_property_readonly("relu_mask_shape", tuple_of<&PyConv2d::relu_mask_shape>)
        .def_property_readonly(
            "flops", [](const PyConv2d& conv) { return conv.core().spec().shape.flops(); });
    define_schedules(type, all_passes, scheduled_passes);
}

}  // namespace dlprim::bindings
