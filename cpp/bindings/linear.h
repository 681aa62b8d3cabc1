// The linear primitive as Python sees it: every check of an operand is made here, before the core
// gets a pointer, and the GIL is released around the work.
#pragma once

#include <cstdint>
#include <string>

#include "bindings/conv2d_operand.h"
#include "primitives/linear/linear.h"

namespace dlprim::bindings {

class PyLinear {
public:
    // `shape` is (N, C, K).
    PyLinear(const Shape& shape, const std::string& dtype, const std::string& dst_dtype,
             const std::string& layout, const std::string& activation, bool bias);

    // Operands are packed arrays, or None where absent.
    void forward(py::handle src, py::handle weights, py::handle bias, py::handle scale,
                 py::handle before_activation, py::handle out) const;
    void backward_data(py::handle diff_dst, py::handle weights, py::handle out) const;
    void backward_weights(py::handle src, py::handle diff_dst, py::handle out) const;
    void backward_activation(py::handle diff_dst, py::handle saved, py::handle out,
                             py::handle diff_bias) const;

    // Between plain (N,C), (N,K) or (K,C) arrays and packed ones.
    void pack_src(py::handle x, py::handle out) const;
    void pack_diff_dst(py::handle dy, py::handle out) const;
    void pack_weights(py::handle w, py::handle out) const;
    void unpack_dst(py::handle dst, py::handle out) const;
    void unpack_diff_src(py::handle diff_src, py::handle out) const;
    void unpack_diff_weights(py::handle diff_weights, py::handle out) const;

    const Shape& src_shape() const { return src_shape_; }
    const Shape& dst_shape() const { return dst_shape_; }
    const Shape& weights_shape() const { return weights_shape_; }
    const Shape& diff_weights_shape() const { return diff_weights_shape_; }

    const Linear& core() const { return linear_; }
    Linear& core() { return linear_; }

private:
    const LinearSpec& spec() const { return linear_.spec(); }
    DType dtype() const { return spec().dtype; }
    DType weights_dtype() const { return is_int8(dtype()) ? DType::s8 : dtype(); }
    // Packed weights with the forward form, and with the backward form behind it where that is
    // asked for.
    Operand packed_weights(const char* name, py::handle array, bool backward) const;
    void require_backward() const;
    // The type of a gradient of the weights, from the array that holds it.
    DType gradient_type(py::handle array) const;

    Linear linear_;
    // Made once, so that a call allocates none of them.
    Shape src_shape_;
    Shape dst_shape_;
    Shape weights_shape_;
    Shape forward_weights_shape_;
    Shape diff_weights_shape_;
    Shape by_channel_;
};

}  // namespace dlprim::bindings
