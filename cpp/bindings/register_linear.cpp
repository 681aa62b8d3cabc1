#include <pybind11/stl.h>

#include "bindings/linear.h"
#include "bindings/register.h"
#include "bindings/schedules.h"

namespace dlprim::bindings {
namespace {

template <const Shape& (PyLinear::*shape)() const>
py::tuple linear_tuple(const PyLinear& linear) {
    return tuple_of((linear.*shape)());
}

std::vector<PassKind> passes(const PyLinear& linear) { return linear.core().passes(); }

}  // namespace

void register_linear(py::module_& module) {
    py::class_<PyLinear> type(module, "Linear");
    type.def(py::init<const Shape&, const std::string&, const std::string&, const std::string&,
                      const std::string&, bool>(),
             py::arg("shape"), py::arg("dtype"), py::arg("dst_dtype"), py::arg("layout"),
             py::arg("activation"), py::arg("bias"))
        .def("forward", &PyLinear::forward, py::arg("src"), py::arg("weights"), py::arg("bias"),
             py::arg("scale"), py::arg("before_activation"), py::arg("out"))
        .def("backward_data", &PyLinear::backward_data, py::arg("diff_dst"), py::arg("weights"),
             py::arg("out"))
        .def("backward_weights", &PyLinear::backward_weights, py::arg("src"), py::arg("diff_dst"),
             py::arg("out"))
        .def("backward_activation", &PyLinear::backward_activation, py::arg("diff_dst"),
             py::arg("saved"), py::arg("out"), py::arg("diff_bias"))
        .def("pack_src", &PyLinear::pack_src, py::arg("x"), py::arg("out"))
        .def("pack_diff_dst", &PyLinear::pack_diff_dst, py::arg("dy"), py::arg("out"))
        .def("pack_weights", &PyLinear::pack_weights, py::arg("w"), py::arg("out"))
        .def("unpack_dst", &PyLinear::unpack_dst, py::arg("dst"), py::arg("out"))
        .def("unpack_diff_src", &PyLinear::unpack_diff_src, py::arg("diff_src"), py::arg("out"))
        .def("unpack_diff_weights", &PyLinear::unpack_diff_weights, py::arg("diff_weights"),
             py::arg("out"))
        .def_property_readonly("src_shape", linear_tuple<&PyLinear::src_shape>)
        .def_property_readonly("dst_shape", linear_tuple<&PyLinear::dst_shape>)
        .def_property_readonly("weights_shape", linear_tuple<&PyLinear::weights_shape>)
        .def_property_readonly("diff_weights_shape", linear_tuple<&PyLinear::diff_weights_shape>)
        .def_property_readonly(
            "flops", [](const PyLinear& linear) { return linear.core().spec().shape.flops(); });
    define_schedules(type, passes, passes);
}

}  // namespace dlprim::bindings
