#include "bindings/parts/objects.h"

#include <pybind11/stl.h>

#include "bindings/arrays/array.h"

namespace dlprim::bindings {

std::string described_look(const Shape& shape, const py::dtype& dtype) {
    const std::string name = are_texts(dtype) ? "string" : numpy_name(dtype);
    return name + " of " + std::string(py::str(py::list(py::cast(shape))));
}

std::string described_value(py::handle value) {
    if (value.is_none()) return "nothing";
    if (!py::isinstance<py::array>(value)) return "a sequence of " + std::to_string(py::len(value));
    const auto array = py::reinterpret_borrow<py::array>(value);
    return described_look({array.shape(), array.shape() + array.ndim()}, array.dtype());
}

bool is_true(const py::object& condition) {
    if (!py::isinstance<py::array>(condition) ||
        py::reinterpret_borrow<py::array>(condition).size() != 1) {
        throw py::value_error("the condition is " + described_value(condition) +
                              ", expected one element");
    }
    const auto array = py::reinterpret_borrow<py::array>(condition);
    if (array.dtype().kind() == 'b') return *static_cast<const char*>(array.data()) != 0;
    return PyObject_IsTrue(py::object(array.attr("item")()).ptr()) == 1;
}

}  // namespace dlprim::bindings
