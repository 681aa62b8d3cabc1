#include "bindings/activations.h"

namespace dlprim::bindings {

PyActivations::PyActivations(const Shape& shape, std::int64_t groups, const std::string& dtype,
                             const std::string& layout)
    : tensor_{.images = shape.at(0),
              .height = shape.at(2),
              .width = shape.at(3),
              .blocks = channel_blocks(groups, shape.at(1) / groups),
              .dtype = parse_dtype(dtype)},
      layout_(layout == "nhwc" ? Format::nhwc : Format::blocked),
      plain_shape_(shape),
      packed_shape_{tensor_.images, tensor_.blocks.count(), tensor_.height, tensor_.width,
                    tensor_.blocks.block},
      channel_shape_{shape.at(1)} {
    if (layout_ == Format::nhwc) {
        packed_shape_ = {tensor_.images, tensor_.height, tensor_.width, channels()};
    }
    mask_shape_ = packed_shape_;
    mask_shape_.back() = (mask_shape_.back() + 7) / 8;
}

void PyActivations::pack(py::handle plain, py::handle out) const {
    const Maybe from = Operand("x", plain, dtype(), plain_shape_);
    char* const to = Operand("out", out, dtype(), packed_shape_).writeable({&from});
    const py::gil_scoped_release without_gil;
    (layout_ == Format::nhwc ? pack_nhwc : pack_blocked)(tensor_, from->data(), to);
}

void PyActivations::unpack(py::handle packed, py::handle out) const {
    const Maybe from = Operand("packed", packed, dtype(), packed_shape_);
    char* const to = Operand("out", out, dtype(), plain_shape_).writeable({&from});
    const py::gil_scoped_release without_gil;
    (layout_ == Format::nhwc ? unpack_nhwc : unpack_blocked)(tensor_, from->data(), to);
}

}  // namespace dlprim::bindings
