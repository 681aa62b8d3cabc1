// Values of a run: arrays, lists of them, and None.
#pragma once

#include <string>
#include <vector>

#include <pybind11/numpy.h>

#include "bindings/arrays/form.h"

namespace dlprim::bindings {

namespace py = pybind11;

using Objects = std::vector<py::object>;

inline py::list list_of(const Objects& objects) {
    py::list made(objects.size());
    for (std::size_t i = 0; i < objects.size(); ++i) made[i] = objects[i];
    return made;
}

inline Objects objects_of(const py::object& given) {
    Objects made;
    for (const py::handle it : given) made.push_back(py::reinterpret_borrow<py::object>(it));
    return made;
}

// Whether elements are codes of texts, which are of a type that no number of a model has.
inline bool are_texts(const py::dtype& dtype) { return dtype.kind() == 'm'; }

// An array of NumPy's own class.
inline bool is_plain_array(py::handle object) {
    return Py_TYPE(object.ptr()) == py::detail::npy_api::get().PyArray_Type_;
}

// Whether an array is one element that is not zero. Throws py::value_error for anything else.
bool is_true(const py::object& condition);
// What a value is, for messages.
std::string described_value(py::handle value);
std::string described_look(const Shape& shape, const py::dtype& dtype);

}  // namespace dlprim::bindings
