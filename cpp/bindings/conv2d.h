// The convolution primitive as Python sees it: every check of an operand is made here, before the
// core gets a pointer, and the GIL is released around the work.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bindings/array.h"
#include "primitives/conv/conv2d.h"

namespace dlprim::bindings {

using Shape = std::vector<std::int64_t>;

class PyConv2d {
public:
    // `shape` holds the fields of ConvShape in their order, `algorithm` is "direct", "winograd" or
    // "auto".
    struct Options {
        std::string dtype;
        std::string layout;
        std::string activation;
        bool bias = false;
        std::string algorithm;
        bool high_accuracy = false;
    };
    PyConv2d(const Shape& shape, const Options& options);

    // Operands are packed arrays, or None where absent.
    void forward(py::handle src, py::handle weights, py::handle bias, py::handle residual,
                 py::handle relu_mask, py::handle out) const;
    void backward_data(py::handle diff_dst, py::handle weights, py::handle out) const;
    void backward_weights(py::handle src, py::handle diff_dst, py::handle out) const;
    void backward_relu(py::handle diff_dst, py::handle dst, py::handle relu_mask, py::handle out,
                       py::handle diff_bias) const;

    // Between plain (N,C,H,W) or (K,C/groups,R,S) arrays and packed ones.
    void pack_src(py::handle x, py::handle out) const;
    void pack_diff_dst(py::handle dy, py::handle out) const;
    void pack_weights(py::handle w, py::handle out) const;
    void unpack_dst(py::handle dst, py::handle out) const;
    void unpack_diff_src(py::handle diff_src, py::handle out) const;
    void unpack_diff_weights(py::handle diff_weights, py::handle out) const;

    const Shape& src_shape() const { return src_shape_; }
    const Shape& dst_shape() const { return dst_shape_; }
    // Of packed weights: as the direct algorithm takes them; with those that Winograd's forward
    // pass takes behind them; and with those of backward-data too. All the same where no pass is
    // Winograd's.
    const Shape& direct_weights_shape() const { return direct_weights_shape_; }
    const Shape& forward_weights_shape() const { return forward_weights_shape_; }
    const Shape& weights_shape() const { return weights_shape_; }
    const Shape& diff_weights_shape() const { return diff_weights_shape_; }
    const Shape& relu_mask_shape() const { return relu_mask_shape_; }

    const Conv2d& core() const { return conv_; }
    Conv2d& core() { return conv_; }

private:
    DType dtype() const { return conv_.spec().dtype; }
    Activations src_activations() const;
    Activations dst_activations() const;
    Shape plain_weights_shape() const;
    // Packed weights and what of them is transformed.
    struct Weights;
    Weights weights_in(const char* name, py::handle array) const;
    std::int64_t direct_weights_bytes() const;
    void find_weights_shapes();
    // The type of a gradient of the weights, from the array that holds it.
    DType gradient_type(py::handle array) const;

    Conv2d conv_;
    // Made once, so that a call allocates none of them.
    Shape src_shape_;
    Shape dst_shape_;
    Shape direct_weights_shape_;
    Shape forward_weights_shape_;
    Shape weights_shape_;
    Shape diff_weights_shape_;
    Shape relu_mask_shape_;
    Shape bias_shape_;
};

}  // namespace dlprim::bindings
