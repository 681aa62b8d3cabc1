// Activations of fixed shape, type and layout as Python sees them: what every layer that works on
// packed arrays is made of. Knows the shapes of operands, so each is checked once, exactly.
#pragma once

#include <cstdint>
#include <string>

#include "bindings/conv2d_operand.h"
#include "primitives/conv/conv_layout.h"

namespace dlprim::bindings {

class PyActivations {
public:
    // `shape` is (N, C, H, W); the channels lie in `groups` groups of blocks.
    PyActivations(const Shape& shape, std::int64_t groups, const std::string& dtype,
                  const std::string& layout);

    const Activations& tensor() const { return tensor_; }
    Format layout() const { return layout_; }
    DType dtype() const { return tensor_.dtype; }
    std::int64_t channels() const { return tensor_.blocks.total(); }
    const Shape& packed_shape() const { return packed_shape_; }
    const Shape& mask_shape() const { return mask_shape_; }
    const Shape& channel_shape() const { return channel_shape_; }

    // A packed array, or None where absent.
    Maybe packed(const char* name, py::handle array) const {
        return maybe(name, array, dtype(), packed_shape_);
    }
    Maybe mask(const char* name, py::handle array) const {
        return maybe(name, array, DType::u8, mask_shape_);
    }
    // float32, one value per channel.
    Maybe by_channel(const char* name, py::handle array) const {
        return maybe(name, array, DType::f32, channel_shape_);
    }

    void pack(py::handle plain, py::handle out) const;
    void unpack(py::handle packed, py::handle out) const;

private:
    Activations tensor_;
    Format layout_;
    Shape plain_shape_;
    Shape packed_shape_;
    Shape mask_shape_;
    Shape channel_shape_;
};

inline const float* floats_or_null(const Maybe& operand) {
    return reinterpret_cast<const float*>(data_or_null(operand));
}

inline const std::uint8_t* bits_or_null(const Maybe& operand) {
    return reinterpret_cast<const std::uint8_t*>(data_or_null(operand));
}

}  // namespace dlprim::bindings
