#include "bindings/array.h"

#include <algorithm>

namespace dlprim::bindings {
namespace {

constexpr std::int64_t kElement = sizeof(float);

[[noreturn]] void refuse_type(const std::string& sentence) { throw py::type_error(sentence); }
[[noreturn]] void refuse_value(const std::string& sentence) { throw py::value_error(sentence); }

std::string type_name(py::handle object) {
    return py::str(py::type::handle_of(object).attr("__name__"));
}

py::array as_array(const char* name, py::handle object) {
    if (py::isinstance<py::array>(object)) return py::reinterpret_borrow<py::array>(object);
    if (!py::hasattr(object, "__dlpack__")) {
        refuse_type(std::string(name) + " is of type " + type_name(object) +
                    ", expected a NumPy array of float32 or an object with __dlpack__");
    }
    try {
        return py::module_::import("numpy").attr("from_dlpack")(object);
    } catch (const py::error_already_set& error) {
        refuse_type(std::string(name) + " of type " + type_name(object) +
                    " cannot be viewed as a NumPy array (detach it and move it to the CPU "
                    "first): " +
                    std::string(py::str(error.value())));
    }
}

bool is_float32(const py::array& array) {
    const py::dtype dtype = array.dtype();
    return dtype.ptr() == py::dtype::of<float>().ptr() || dtype.equal(py::dtype::of<float>());
}

}  // namespace

ArrayView::ArrayView(const char* name, py::handle object)
    : name_(name), array_(as_array(name, object)) {
    if (!is_float32(array_)) {
        refuse_type(std::string(name) + " has dtype " + std::string(py::str(array_.dtype())) +
                    ", expected float32");
    }
    std::int64_t misaligned = reinterpret_cast<std::intptr_t>(array_.data()) % kElement;
    for (int axis = 0; axis < ndim(); ++axis) {
        const std::int64_t reach = (shape(axis) - 1) * stride(axis);
        (reach < 0 ? low_ : high_) += reach;
        misaligned |= shape(axis) > 1 ? stride(axis) % kElement : 0;
    }
    high_ = array_.size() == 0 ? low_ : high_ + kElement;
    if (misaligned != 0 && array_.size() > 0) {
        refuse_value(description() + ", whose elements are not aligned to 4 bytes");
    }
}

char* ArrayView::data() const { return static_cast<char*>(const_cast<void*>(array_.data())); }

bool ArrayView::is_c_contiguous() const { return (array_.flags() & py::array::c_style) != 0; }

std::string ArrayView::description() const {
    return std::string(name_) + " has shape " + std::string(py::str(array_.attr("shape"))) +
           " and strides " + std::string(py::str(array_.attr("strides")));
}

void ArrayView::require_writeable() const {
    if (!array_.writeable())
        refuse_value(std::string(name_) + " is read-only, expected a writeable array");
}

void ArrayView::require_vector(std::int64_t length) const {
    if (ndim() != 1 || shape(0) != length || !is_c_contiguous()) {
        refuse_value(description() + ", expected a contiguous vector of shape (" +
                     std::to_string(length) + ",)");
    }
}

void ArrayView::require_matrix(std::int64_t rows, std::int64_t columns, std::int64_t ld) const {
    const int last = ndim() - 1;
    const bool empty = array_.size() == 0;  // NumPy gives an empty array any strides
    const bool fits = last >= 1 && shape(last - 1) == rows &&
                      (shape(last) == columns || shape(last) == ld) &&
                      (empty || shape(last) == 1 || stride(last) == kElement) &&
                      (empty || rows == 1 || stride(last - 1) == ld * kElement);
    if (!fits) {
        refuse_value(description() + ", expected matrices of shape (" + std::to_string(rows) +
                     ", " + std::to_string(columns) +
                     ") with contiguous rows that are ld=" + std::to_string(ld) + " elements (" +
                     std::to_string(ld * kElement) + " bytes) apart");
    }
}

void ArrayView::require_inside(std::int64_t offset, std::int64_t span) const {
    if (offset % kElement != 0) {
        refuse_value("a matrix of " + std::string(name_) + " begins at byte " +
                     std::to_string(offset) + ", expected a multiple of 4");
    }
    if (offset < low_ || offset > high_ || span > high_ - offset) {
        refuse_value("a matrix of " + std::string(name_) + " occupies " + std::to_string(span) +
                     " bytes from byte " + std::to_string(offset) + ", outside the " +
                     std::to_string(high_ - low_) + " bytes of the array: " + description());
    }
}

void ArrayView::require_apart(const ArrayView& operand, bool reads_between) const {
    const char* const begin = data() + low_;
    const char* const end = data() + high_;
    if (operand.data() + operand.high_ <= begin || end <= operand.data() + operand.low_) return;
    const py::object shares = py::module_::import("numpy").attr("shares_memory");
    if (reads_between || shares(array_, operand.array_).cast<bool>()) {
        refuse_value(std::string(name_) + " shares memory with " + operand.name_ +
                     ", expected a result that overlaps no operand");
    }
}

std::int64_t integer_or(const char* name, py::handle object, std::int64_t fallback) {
    if (object.is_none()) return fallback;
    const auto index = py::reinterpret_steal<py::object>(PyNumber_Index(object.ptr()));
    if (!index) {
        PyErr_Clear();
        refuse_type(std::string(name) + " is of type " + type_name(object) +
                    ", expected an integer");
    }
    const std::int64_t value = PyLong_AsLongLong(index.ptr());
    if (value == -1 && PyErr_Occurred() != nullptr) {
        PyErr_Clear();
        refuse_value(std::string(name) + " does not fit in 64 bits");
    }
    return value;
}

}  // namespace dlprim::bindings
