#include "bindings/conv2d.h"

#include "bindings/conv2d_operand.h"
#include "bindings/conv2d_weights.h"

namespace dlprim::bindings {
namespace {

constexpr std::size_t kShapeFields = 16;

ConvShape shape_of(const Shape& values) {
    if (values.size() != kShapeFields) {
        throw py::value_error("shape has " + std::to_string(values.size()) +
                              " values, expected 16");
    }
    return {.N = values[0],
            .C = values[1],
            .H = values[2],
            .W = values[3],
            .K = values[4],
            .R = values[5],
            .S = values[6],
            .stride_h = values[7],
            .stride_w = values[8],
            .pad_top = values[9],
            .pad_bottom = values[10],
            .pad_left = values[11],
            .pad_right = values[12],
            .dilation_h = values[13],
            .dilation_w = values[14],
            .groups = values[15]};
}

ConvAlgorithm parse_algorithm(const std::string& name) {
    if (name == "winograd") return ConvAlgorithm::winograd;
    return name == "auto" ? ConvAlgorithm::automatic : ConvAlgorithm::direct;
}

Shape activations_shape(const Activations& it, Format layout) {
    if (layout == Format::nhwc) return {it.images, it.height, it.width, it.blocks.total()};
    return {it.images, it.blocks.count(), it.height, it.width, it.blocks.block};
}

Shape diff_weights_shape_of(const ConvShape& shape) {
    const ChannelBlocks in = src_blocks(shape);
    const ChannelBlocks out = dst_blocks(shape);
    if (shape.is_depthwise()) return {out.count(), shape.R, shape.S, out.block};
    return {out.count(), in.per_group(), shape.R, shape.S, in.block, out.block};
}

}  // namespace

PyConv2d::PyConv2d(const Shape& shape, const Options& options)
    : conv_({.shape = shape_of(shape),
             .dtype = parse_dtype(options.dtype),
             .layout = options.layout == "nhwc" ? Format::nhwc : Format::blocked,
             .activation = parse_activation(options.activation),
             .bias = options.bias,
             .algorithm = parse_algorithm(options.algorithm),
             .high_accuracy = options.high_accuracy}),
      src_shape_(activations_shape(src_activations(), conv_.spec().layout)),
      dst_shape_(activations_shape(dst_activations(), conv_.spec().layout)),
      direct_weights_shape_(diff_weights_shape_of(conv_.spec().shape)),
      diff_weights_shape_(direct_weights_shape_),
      relu_mask_shape_(dst_shape_),
      bias_shape_{conv_.spec().shape.K} {
    relu_mask_shape_.back() = (relu_mask_shape_.back() + 7) / 8;
    if (dtype() == DType::bf16 && !conv_.spec().shape.is_depthwise()) {
        direct_weights_shape_[4] = (direct_weights_shape_[4] + 1) / 2;
        direct_weights_shape_.push_back(2);
    }
    find_weights_shapes();
}

DType PyConv2d::gradient_type(py::handle array) const {
    const bool narrow = dtype() == DType::bf16 && py::isinstance<py::array>(array) &&
                        py::reinterpret_borrow<py::array>(array).itemsize() == size_of(DType::bf16);
    return narrow ? DType::bf16 : DType::f32;
}

void PyConv2d::forward(py::handle src, py::handle weights, py::handle bias, py::handle residual,
                       py::handle relu_mask, py::handle out) const {
    const Maybe source = Operand("src", src, dtype(), src_shape());
    const Weights given = weights_in("weights", weights);
    const Maybe& filter = given.array;
    const Maybe offset = maybe("bias", bias, DType::f32, bias_shape_);
    const Maybe addend = maybe("residual", residual, dtype(), dst_shape());
    const Maybe mask = maybe("relu_mask", relu_mask, DType::u8, relu_mask_shape());
    const Maybe dst = Operand("out", out, dtype(), dst_shape());
    if (conv_.spec().bias != offset.has_value()) {
        throw py::value_error(conv_.spec().bias
                                  ? "bias is missing: the convolution was made with bias=True"
                                  : "bias was given, but the convolution was made without "
                                    "bias=True");
    }
    if (mask && conv_.spec().activation != Activation::relu) {
        throw py::value_error("relu_mask was given, but the activation of the convolution is '" +
                              std::string(name_of(conv_.spec().activation)) + "', expected 'relu'");
    }
    ConvForward tensors{.src = source->data(),
                        .weights = filter->data(),
                        .bias = reinterpret_cast<const float*>(data_or_null(offset)),
                        .residual = data_or_null(addend),
                        .transformed = given.forward};
    const bool in_place = addend && addend->data() == dst->data();
    tensors.dst = in_place ? dst->writeable({&source, &filter, &offset})
                           : dst->writeable({&source, &filter, &offset, &addend});
    if (mask) {
        tensors.relu_mask = reinterpret_cast<std::uint8_t*>(
            mask->writeable({&source, &filter, &offset, &addend, &dst}));
    }
    const py::gil_scoped_release without_gil;
    conv_.forward(tensors);
}

void PyConv2d::backward_data(py::handle diff_dst, py::handle weights, py::handle out) const {
    const Maybe gradient = Operand("diff_dst", diff_dst, dtype(), dst_shape());
    const Weights given = weights_in("weights", weights);
    const Maybe& filter = given.array;
    char* const result = Operand("out", out, dtype(), src_shape()).writeable({&gradient, &filter});
    const py::gil_scoped_release without_gil;
    conv_.backward_data(gradient->data(), filter->data(), result, given.backward);
}

void PyConv2d::backward_weights(py::handle src, py::handle diff_dst, py::handle out) const {
    const Maybe source = Operand("src", src, dtype(), src_shape());
    const Maybe gradient = Operand("diff_dst", diff_dst, dtype(), dst_shape());
    const DType to = gradient_type(out);
    char* const result =
        Operand("out", out, to, diff_weights_shape()).writeable({&source, &gradient});
    const py::gil_scoped_release without_gil;
    conv_.backward_weights(source->data(), gradient->data(), to, result);
}

void PyConv2d::backward_relu(py::handle diff_dst, py::handle dst, py::handle relu_mask,
                             py::handle out, py::handle diff_bias) const {
    const Maybe gradient = Operand("diff_dst", diff_dst, dtype(), dst_shape());
    const Maybe result = maybe("dst", dst, dtype(), dst_shape());
    const Maybe mask = maybe("relu_mask", relu_mask, DType::u8, relu_mask_shape());
    const Maybe passed = maybe("out", out, dtype(), dst_shape());
    const Maybe sum = maybe("diff_bias", diff_bias, DType::f32, bias_shape_);
    if (result && mask) throw py::value_error("dst and relu_mask were given, expected one");
    ActivationBackward problem{
        .diff_dst = gradient->data(),
        .saved = data_or_null(result),
        .relu_mask = reinterpret_cast<const std::uint8_t*>(data_or_null(mask))};
    const bool in_place = passed && passed->data() == gradient->data();
    const Maybe nothing;
    if (passed) problem.out = passed->writeable({in_place ? &nothing : &gradient, &result, &mask});
    if (sum) {
        problem.diff_bias =
            reinterpret_cast<float*>(sum->writeable({&gradient, &result, &mask, &passed}));
    }
    const py::gil_scoped_release without_gil;
    conv_.backward_relu(problem);
}

Activations PyConv2d::src_activations() const {
    const ConvShape& shape = conv_.spec().shape;
    return {shape.N, shape.H, shape.W, src_blocks(shape), dtype()};
}

Activations PyConv2d::dst_activations() const {
    const ConvShape& shape = conv_.spec().shape;
    return {shape.N, shape.P(), shape.Q(), dst_blocks(shape), dtype()};
}

Shape PyConv2d::plain_weights_shape() const {
    const ConvShape& shape = conv_.spec().shape;
    return {shape.K, shape.group_C(), shape.R, shape.S};
}

}  // namespace dlprim::bindings
