// Operands of a convolution as the bindings take them: an array of one exact shape, or None.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>

#include <pybind11/stl.h>

#include "bindings/conv2d.h"

namespace dlprim::bindings {

inline py::tuple tuple_of(const Shape& shape) { return py::tuple(py::cast(shape)); }

// An operand of exactly this shape, C-contiguous.
class Operand {
public:
    Operand(const char* name, py::handle object, DType dtype, const Shape& shape)
        : view_(name, object, dtype) {
        bool fits = view_.ndim() == static_cast<int>(shape.size()) && view_.is_c_contiguous();
        for (int axis = 0; fits && axis < view_.ndim(); ++axis) {
            fits = view_.shape(axis) == shape[static_cast<std::size_t>(axis)];
        }
        if (!fits) {
            throw py::value_error(view_.description() +
                                  ", expected a C-contiguous array of shape " +
                                  std::string(py::str(tuple_of(shape))));
        }
    }

    char* data() const { return view_.data(); }
    std::int64_t shape(int axis) const { return view_.shape(axis); }

    // A result that shares no memory with `operands`.
    char* writeable(std::initializer_list<const std::optional<Operand>*> operands) const {
        view_.require_writeable();
        for (const std::optional<Operand>* operand : operands) {
            if (*operand) view_.require_apart((*operand)->view_);
        }
        return view_.data();
    }

private:
    ArrayView view_;
};

using Maybe = std::optional<Operand>;

inline Maybe maybe(const char* name, py::handle object, DType dtype, const Shape& shape) {
    if (object.is_none()) return std::nullopt;
    return Operand(name, object, dtype, shape);
}

inline const char* data_or_null(const Maybe& operand) {
    return operand ? operand->data() : nullptr;
}

}  // namespace dlprim::bindings
