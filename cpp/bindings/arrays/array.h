// NumPy arrays as checked memory. Every check of an operand's type, shape, strides and bounds is
// made here, before any pointer reaches the core, and each failure is a sentence that names the
// argument, what it was and what was expected. Strides and offsets are in bytes throughout.
#pragma once

#include <cstdint>
#include <string>

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include "jit/dtype.h"

namespace dlprim::bindings {

namespace py = pybind11;

// The element type of NumPy's name for it. Throws py::type_error.
DType parse_dtype(const std::string& name);

// NumPy's; of bfloat16 that of its bits, uint16.
py::dtype numpy_dtype(DType dtype);

// Whether this is an ndarray of ml_dtypes' bfloat16 in native byte order.
bool is_bfloat16_array(py::handle object);

// Where the elements of a checked array are, as a pointer to whatever type the dtype that was asked
// for has in C++.
struct Memory {
    char* data = nullptr;

    explicit operator bool() const { return data != nullptr; }
    template <class T>
    operator T*() const {
        return reinterpret_cast<T*>(data);
    }
};

// A subclass of ndarray some of whose elements have no value.
bool is_masked(py::handle object);

// An array argument whose memory may be touched: of the expected type, native byte order, aligned
// unless it may begin anywhere.
class ArrayView {
public:
    // Takes ndarrays as they are and other objects with __dlpack__ without a copy. For bfloat16
    // also takes uint16, whose bits it then is. Throws py::type_error for anything else.
    ArrayView(const char* name, py::handle object, DType dtype, bool anywhere = false);

    const char* name() const { return name_; }
    const py::array& array() const { return array_; }
    int ndim() const { return static_cast<int>(array_.ndim()); }
    std::int64_t shape(int axis) const { return array_.shape(axis); }
    std::int64_t stride(int axis) const { return array_.strides(axis); }
    char* data() const { return static_cast<char*>(const_cast<void*>(array_.data())); }

    // The bytes that the array's elements occupy, relative to data().
    std::int64_t low() const { return low_; }
    std::int64_t high() const { return high_; }

    bool is_c_contiguous() const { return (array_.flags() & py::array::c_style) != 0; }

    // For example "a has shape (4, 8) and strides (32, 4)".
    std::string description() const;

    void require_writeable() const;
    void require_vector(std::int64_t length) const;

    // Refuses unless the last two axes are a (rows, columns) matrix whose rows are `ld` elements
    // apart, or the last three a packed (rows, columns, group) one whose rows are `ld` groups
    // apart. The axis of columns may also show the whole row of `ld`.
    void require_matrix(std::int64_t rows, std::int64_t columns, std::int64_t ld,
                        std::int64_t group = 1) const;

    // The same, and refuses unless the array is that one matrix.
    void require_one_matrix(std::int64_t rows, std::int64_t columns, std::int64_t ld) const;

    // Refuses unless [offset, offset + span) lies within the array.
    void require_inside(std::int64_t offset, std::int64_t span) const;

    // Refuses when this result shares an element with `operand`, or, where the kernel also reads
    // between the operand's elements, when it lies among them.
    void require_apart(const ArrayView& operand, bool reads_between = false) const;

private:
    const char* name_;
    py::array array_;
    std::int64_t element_;  // bytes
    std::int64_t low_ = 0;
    std::int64_t high_ = 0;
};

// What NumPy calls a type. It takes some microseconds to say so, and a network has hundreds of
// values of a few types; of a type that is known its object is. The GIL is held.
std::string numpy_name(const py::dtype& dtype);

// A Python integer, or `fallback` for None. Throws py::type_error that names the argument.
std::int64_t integer_or(const char* name, py::handle object, std::int64_t fallback);

}  // namespace dlprim::bindings
