#include "bindings/linear.h"

#include "primitives/layers/activation_backward.h"

namespace dlprim::bindings {
namespace {

LinearShape linear_shape(const Shape& values) {
    if (values.size() != 3) {
        throw py::value_error("shape has " + std::to_string(values.size()) +
                              " values, expected N, C and K");
    }
    return {.N = values[0], .C = values[1], .K = values[2]};
}

Shape samples_shape(Format layout, std::int64_t samples, const ChannelBlocks& blocks) {
    if (layout == Format::nhwc) return {samples, blocks.channels};
    return {blocks.count(), samples, blocks.block};
}

Shape weights_shape_of(const LinearShape& shape, DType dtype, std::int64_t forms) {
    const ChannelBlocks in = depth_blocks(shape.C, dtype), out = linear_blocks(shape.K);
    const std::int64_t group = elements_per_word(dtype);
    Shape packed{forms, out.count(), in.count(), in.block / group, out.block};
    if (group > 1) packed.push_back(group);
    return packed;
}

}  // namespace

PyLinear::PyLinear(const Shape& shape, const std::string& dtype, const std::string& dst_dtype,
                   const std::string& layout, const std::string& activation, bool bias)
    : linear_({.shape = linear_shape(shape),
               .dtype = parse_dtype(dtype),
               .dst_dtype = parse_dtype(dst_dtype),
               .layout = layout == "plain" ? Format::nhwc : Format::blocked,
               .activation = parse_activation(activation),
               .bias = bias}),
      src_shape_(samples_shape(spec().layout, shape[0], linear_blocks(shape[1]))),
      dst_shape_(samples_shape(spec().layout, shape[0], linear_blocks(shape[2]))),
      weights_shape_(weights_shape_of(spec().shape, this->dtype(), linear_.has_backward() ? 2 : 1)),
      forward_weights_shape_(weights_shape_of(spec().shape, this->dtype(), 1)),
      by_channel_{shape[2]} {
    const ChannelBlocks in = linear_blocks(shape[1]), out = linear_blocks(shape[2]);
    diff_weights_shape_ = {in.count(), out.count(), out.block, in.block};
}

Operand PyLinear::packed_weights(const char* name, py::handle array, bool backward) const {
    const bool short_form = !backward && py::isinstance<py::array>(array) &&
                            py::reinterpret_borrow<py::array>(array).ndim() > 0 &&
                            py::reinterpret_borrow<py::array>(array).shape(0) == 1;
    return {name, array, weights_dtype(), short_form ? forward_weights_shape_ : weights_shape_};
}

void PyLinear::require_backward() const {
    if (linear_.has_backward()) return;
    throw py::type_error("the layer is of dtype " + std::string(name_of(dtype())) +
                         ", which has the forward pass alone");
}

DType PyLinear::gradient_type(py::handle array) const {
    const bool narrow = dtype() == DType::bf16 && py::isinstance<py::array>(array) &&
                        py::reinterpret_borrow<py::array>(array).itemsize() == size_of(DType::bf16);
    return narrow ? DType::bf16 : DType::f32;
}

void PyLinear::forward(py::handle src, py::handle weights, py::handle bias, py::handle scale,
                       py::handle before_activation, py::handle out) const {
    const Maybe source = Operand("src", src, dtype(), src_shape_);
    const Maybe matrix = packed_weights("weights", weights, false);
    const Maybe offset = maybe("bias", bias, DType::f32, by_channel_);
    const Maybe factor = maybe("scale", scale, DType::f32, by_channel_);
    const Maybe argument =
        maybe("before_activation", before_activation, spec().dst_dtype, dst_shape_);
    const Maybe dst = Operand("out", out, spec().dst_dtype, dst_shape_);
    if (spec().bias != offset.has_value()) {
        throw py::value_error(spec().bias
                                  ? "bias is missing: the layer was made with bias=True"
                                  : "bias was given, but the layer was made without bias=True");
    }
    if (is_int8(dtype()) != factor.has_value()) {
        throw py::value_error(factor ? "scale was given, but the layer is of dtype " +
                                           std::string(name_of(dtype())) + ", expected 8 bits"
                                     : "scale is missing: 8-bit products are multiplied by it");
    }
    LinearForward tensors{.src = source->data(),
                          .weights = matrix->data(),
                          .bias = reinterpret_cast<const float*>(data_or_null(offset)),
                          .scale = reinterpret_cast<const float*>(data_or_null(factor))};
    tensors.dst = dst->writeable({&source, &matrix, &offset, &factor});
    if (argument) {
        tensors.before_activation = argument->writeable({&source, &matrix, &offset, &factor, &dst});
    }
    const py::gil_scoped_release without_gil;
    linear_.forward(tensors);
}

void PyLinear::backward_data(py::handle diff_dst, py::handle weights, py::handle out) const {
    require_backward();
    const Maybe gradient = Operand("diff_dst", diff_dst, dtype(), dst_shape_);
    const Maybe matrix = packed_weights("weights", weights, true);
    char* const result = Operand("out", out, dtype(), src_shape_).writeable({&gradient, &matrix});
    const std::int64_t behind = linear_weights_size(spec().shape, dtype()) * size_of(dtype());
    const py::gil_scoped_release without_gil;
    linear_.backward_data(gradient->data(), matrix->data() + behind, result);
}

void PyLinear::backward_weights(py::handle src, py::handle diff_dst, py::handle out) const {
    require_backward();
    const Maybe source = Operand("src", src, dtype(), src_shape_);
    const Maybe gradient = Operand("diff_dst", diff_dst, dtype(), dst_shape_);
    const DType to = gradient_type(out);
    char* const result =
        Operand("out", out, to, diff_weights_shape_).writeable({&source, &gradient});
    const py::gil_scoped_release without_gil;
    linear_.backward_weights(source->data(), gradient->data(), to, result);
}

void PyLinear::backward_activation(py::handle diff_dst, py::handle saved, py::handle out,
                                   py::handle diff_bias) const {
    require_backward();
    const Maybe gradient = Operand("diff_dst", diff_dst, dtype(), dst_shape_);
    const Maybe kept = maybe("saved", saved, dtype(), dst_shape_);
    const Maybe passed = maybe("out", out, dtype(), dst_shape_);
    const Maybe sum = maybe("diff_bias", diff_bias, DType::f32, by_channel_);
    ActivationBackward problem{.diff_dst = gradient->data(), .saved = data_or_null(kept)};
    if (spec().activation != Activation::none && !(kept && passed)) {
        throw py::value_error("saved or out is missing: the activation of the layer is '" +
                              std::string(name_of(spec().activation)) + "'");
    }
    const bool in_place = passed && passed->data() == gradient->data();
    const Maybe nothing;
    if (passed) problem.out = passed->writeable({in_place ? &nothing : &gradient, &kept});
    if (sum) {
        problem.diff_bias = reinterpret_cast<float*>(sum->writeable({&gradient, &kept, &passed}));
    }
    const py::gil_scoped_release without_gil;
    linear_.backward_activation(problem);
}

void PyLinear::pack_src(py::handle x, py::handle out) const {
    const LinearShape& shape = spec().shape;
    const Maybe plain = Operand("x", x, dtype(), {shape.N, shape.C});
    char* const packed = Operand("out", out, dtype(), src_shape_).writeable({&plain});
    const Activations tensor = linear_activations(shape.N, shape.C, dtype());
    const py::gil_scoped_release without_gil;
    pack_samples(tensor, spec().layout, plain->data(), packed);
}

void PyLinear::pack_diff_dst(py::handle dy, py::handle out) const {
    const LinearShape& shape = spec().shape;
    const Maybe plain = Operand("dy", dy, spec().dst_dtype, {shape.N, shape.K});
    char* const packed = Operand("out", out, spec().dst_dtype, dst_shape_).writeable({&plain});
    const Activations tensor = linear_activations(shape.N, shape.K, spec().dst_dtype);
    const py::gil_scoped_release without_gil;
    pack_samples(tensor, spec().layout, plain->data(), packed);
}

void PyLinear::unpack_dst(py::handle dst, py::handle out) const {
    const LinearShape& shape = spec().shape;
    const Maybe packed = Operand("dst", dst, spec().dst_dtype, dst_shape_);
    char* const plain =
        Operand("out", out, spec().dst_dtype, {shape.N, shape.K}).writeable({&packed});
    const Activations tensor = linear_activations(shape.N, shape.K, spec().dst_dtype);
    const py::gil_scoped_release without_gil;
    unpack_samples(tensor, spec().layout, packed->data(), plain);
}

void PyLinear::unpack_diff_src(py::handle diff_src, py::handle out) const {
    const LinearShape& shape = spec().shape;
    const Maybe packed = Operand("diff_src", diff_src, dtype(), src_shape_);
    char* const plain = Operand("out", out, dtype(), {shape.N, shape.C}).writeable({&packed});
    const Activations tensor = linear_activations(shape.N, shape.C, dtype());
    const py::gil_scoped_release without_gil;
    unpack_samples(tensor, spec().layout, packed->data(), plain);
}

void PyLinear::pack_weights(py::handle w, py::handle out) const {
    const LinearShape& shape = spec().shape;
    // Master weights are float32 whatever the passes multiply.
    const bool rounds = dtype() == DType::bf16 && py::isinstance<py::array_t<float>>(w);
    const DType from = rounds ? DType::f32 : weights_dtype();
    const Maybe plain = Operand("w", w, from, {shape.K, shape.C});
    const Operand packed = packed_weights("out", out, false);
    char* const result = packed.writeable({&plain});
    const bool backward = packed.shape(0) > 1;
    const py::gil_scoped_release without_gil;
    pack_linear_weights(shape, {from, rounds ? dtype() : from}, backward, plain->data(), result);
}

void PyLinear::unpack_diff_weights(py::handle diff_weights, py::handle out) const {
    require_backward();
    const LinearShape& shape = spec().shape;
    const DType from = gradient_type(diff_weights);
    const Maybe packed = Operand("diff_weights", diff_weights, from, diff_weights_shape_);
    char* const plain = Operand("out", out, from, {shape.K, shape.C}).writeable({&packed});
    const py::gil_scoped_release without_gil;
    unpack_linear_diff_weights(shape, from, packed->data(), plain);
}

}  // namespace dlprim::bindings
