#include "bindings/conv2d_operand.h"
#include "primitives/conv/conv_layout.h"

namespace dlprim::bindings {
namespace {

using Pack = void (*)(const Activations&, const void*, void*);

Shape plain(const Activations& it) { return {it.images, it.blocks.total(), it.height, it.width}; }

void move(const Activations& activations, Pack pack, const Operand& from, const Operand& to) {
    const Maybe source = from;
    char* const result = to.writeable({&source});
    const py::gil_scoped_release without_gil;
    pack(activations, source->data(), result);
}

}  // namespace

void PyConv2d::pack_src(py::handle x, py::handle out) const {
    move(src_activations(), conv_.spec().layout == Format::nhwc ? pack_nhwc : pack_blocked,
         Operand("x", x, dtype(), plain(src_activations())),
         Operand("out", out, dtype(), src_shape()));
}

void PyConv2d::pack_diff_dst(py::handle dy, py::handle out) const {
    move(dst_activations(), conv_.spec().layout == Format::nhwc ? pack_nhwc : pack_blocked,
         Operand("dy", dy, dtype(), plain(dst_activations())),
         Operand("out", out, dtype(), dst_shape()));
}

void PyConv2d::unpack_dst(py::handle dst, py::handle out) const {
    move(dst_activations(), conv_.spec().layout == Format::nhwc ? unpack_nhwc : unpack_blocked,
         Operand("dst", dst, dtype(), dst_shape()),
         Operand("out", out, dtype(), plain(dst_activations())));
}

void PyConv2d::unpack_diff_src(py::handle diff_src, py::handle out) const {
    move(src_activations(), conv_.spec().layout == Format::nhwc ? unpack_nhwc : unpack_blocked,
         Operand("diff_src", diff_src, dtype(), src_shape()),
         Operand("out", out, dtype(), plain(src_activations())));
}

void PyConv2d::unpack_diff_weights(py::handle dw, py::handle out) const {
    const DType from = gradient_type(dw);
    const Maybe packed = Operand("diff_weights", dw, from, diff_weights_shape());
    char* const result = Operand("out", out, from, plain_weights_shape()).writeable({&packed});
    const py::gil_scoped_release without_gil;
    dlprim::unpack_diff_weights(conv_.spec().shape, from, packed->data(), result);
}

}  // namespace dlprim::bindings
