#include "bindings/arrays/known_calls.h"

#include <cstdint>
#include <cstdlib>

#include <pybind11/numpy.h>

#include "bindings/register.h"

namespace dlprim::bindings {
namespace {

namespace py = pybind11;

constexpr int kDeepestTuple = 3;

template <class Value>
void append(std::string& form, char kind, Value value) {
    form += kind;
    form.append(reinterpret_cast<const char*>(&value), sizeof value);
}

bool append_array(std::string& form, py::handle object) {
    if (object.is_none()) {
        form += 'n';
        return true;
    }
    if (Py_TYPE(object.ptr()) != py::detail::npy_api::get().PyArray_Type_) return false;
    const auto array = py::reinterpret_borrow<py::array>(object);
    const int needed = py::array::c_style | int{py::detail::npy_api::NPY_ARRAY_ALIGNED_};
    if ((array.flags() & needed) != needed) return false;
    const py::dtype dtype = array.dtype();
    if (dtype.byteorder() != '=' && dtype.byteorder() != '|') return false;
    append(form, 'a', dtype.num());
    append(form, 'd', array.ndim());
    form.append(reinterpret_cast<const char*>(array.shape()),
                static_cast<std::size_t>(array.ndim()) * sizeof(py::ssize_t));
    return true;
}

bool append_value(std::string& form, py::handle value, int deepest) {
    if (value.is_none()) {
        form += 'n';
    } else if (PyLong_CheckExact(value.ptr())) {
        int beyond = 0;
        const long long number = PyLong_AsLongLongAndOverflow(value.ptr(), &beyond);
        if (beyond != 0) return false;
        append(form, 'i', number);
    } else if (PyBool_Check(value.ptr())) {
        append(form, 'b', value.ptr() == Py_True);
    } else if (PyFloat_CheckExact(value.ptr())) {
        append(form, 'f', PyFloat_AS_DOUBLE(value.ptr()));
    } else if (PyUnicode_CheckExact(value.ptr())) {
        Py_ssize_t size = 0;
        const char* const text = PyUnicode_AsUTF8AndSize(value.ptr(), &size);
        if (text == nullptr) {  // a lone surrogate
            PyErr_Clear();
            return false;
        }
        append(form, 's', size);
        form.append(text, static_cast<std::size_t>(size));
    } else if (PyTuple_CheckExact(value.ptr()) && deepest > 0) {
        append(form, 't', PyTuple_GET_SIZE(value.ptr()));
        for (const py::handle each : py::reinterpret_borrow<py::tuple>(value)) {
            if (!append_value(form, each, deepest - 1)) return false;
        }
    } else {
        return false;
    }
    return true;
}

}  // namespace

bool KnownCalls::write_form(const py::tuple& arrays, const py::tuple& others) {
    form_.clear();
    for (const py::handle array : arrays) {
        if (!append_array(form_, array)) return false;
    }
    if (!append_value(form_, others, kDeepestTuple)) return false;
    const char* const setting = std::getenv(variable_.c_str());
    if (setting != nullptr) form_ += setting;
    return true;
}

py::object KnownCalls::find(const py::tuple& arrays, const py::tuple& others) {
    if (!write_form(arrays, others)) return py::none();
    if (!latest_.empty() && latest_.front().first == form_) return latest_.front().second;
    const auto known = places_.find(form_);
    if (known == places_.end()) return py::none();
    latest_.splice(latest_.begin(), latest_, known->second);
    return known->second->second;
}

void KnownCalls::keep(const py::tuple& arrays, const py::tuple& others, py::object found,
                      const py::tuple& used) {
    for (std::size_t i = 0; i < arrays.size(); ++i) {
        if (!arrays[i].is(used[i])) return;
    }
    if (!write_form(arrays, others) || places_.contains(form_)) return;
    latest_.emplace_front(form_, std::move(found));
    places_[form_] = latest_.begin();
    if (latest_.size() <= most_) return;
    const Entry oldest = std::move(latest_.back());  // whose end may run Python
    places_.erase(oldest.first);
    latest_.pop_back();
}

void KnownCalls::clear() {
    const std::list<Entry> ended = std::move(latest_);
    latest_.clear();
    places_.clear();
}

void register_known_calls(py::module_& module) {
    py::class_<KnownCalls>(module, "KnownCalls")
        .def(py::init<std::size_t, std::string>(), py::arg("most"), py::arg("variable"))
        .def("find", &KnownCalls::find)
        .def("keep", &KnownCalls::keep)
        .def("clear", &KnownCalls::clear);
}

}  // namespace dlprim::bindings
