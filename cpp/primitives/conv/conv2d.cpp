#include "primitives/conv/conv2d.h"

#include <algorithm>
#include <stdexcept>

#include "primitives/depthwise/depthwise.h"

namespace dlprim {
namespace {

// Bound of the kernel's leading dimensions.
constexpr std::int64_t kMostApart = std::int64_t{1} << 24;

// Elements of src between neighbouring pixels of a row of the result.
std::int64_t src_distance(const ConvSpec& spec) {
    const ConvShape& shape = spec.shape;
    const bool nhwc = spec.layout == Format::nhwc;
    const std::int64_t pixel = nhwc ? shape.C : src_blocks(shape, spec.dtype).block;
    return shape.Q() > 1 ? shape.stride_w * pixel : pixel;
}

// Rows of the kernel's operands are pixels of one image row, or channels.
void require_kernel_limits(const ConvSpec& spec) {
    const ConvShape& shape = spec.shape;
    const bool nhwc = spec.layout == Format::nhwc;
    const std::int64_t dst_pixel =
        nhwc ? shape.K : dst_blocks(shape, spec.problem().result()).block;
    const std::int64_t apart = src_distance(spec);
    if (std::max(apart, dst_pixel) <= kMostApart && shape.H <= kMostApart &&
        shape.P() <= kMostApart) {
        return;
    }
    throw std::invalid_argument(
        "neighbouring pixels of a result are " + std::to_string(apart) + " elements of src and " +
        std::to_string(dst_pixel) + " of dst apart (C=" + std::to_string(shape.C) +
        ", K=" + std::to_string(shape.K) + ", stride_w=" + std::to_string(shape.stride_w) +
        (nhwc ? ", channels-last" : ", blocked") + "), and images have " + std::to_string(shape.H) +
        " and " + std::to_string(shape.P()) + " rows, expected at most 2^24 of each");
}

ConvSpec within_limits(ConvSpec spec) {
    spec.shape = validated(spec.shape);
    if (spec.shape.is_depthwise() && spec.problem().result() == DType::s32) {
        throw std::invalid_argument(
            "dst of a depthwise convolution is of int32, expected float32, bfloat16, uint8 or "
            "int8");
    }
    require_kernel_limits(spec);
    return spec;
}

// Images of one column lie as images of one row do, and tiles are of pixels of a row. A row is one
// task for each vector of filters, where a column is one for each pixel, of four times the time:
// with fewer rows than that many threads would take longer.
ConvSpec with_columns_as_rows(const ConvSpec& spec) {
    const ConvShape& shape = spec.shape;
    if (shape.W + shape.pad_left + shape.pad_right > 1) return spec;
    if (shape.N * shape.groups * Blocks{shape.K / shape.groups, 16}.count() < 4) return spec;
    ConvSpec made = spec;
    made.shape.H = 1;
    made.shape.W = shape.H;
    made.shape.R = 1;
    made.shape.S = shape.R;
    made.shape.stride_h = 1;
    made.shape.stride_w = shape.stride_h;
    made.shape.pad_top = made.shape.pad_bottom = 0;
    made.shape.pad_left = shape.pad_top;
    made.shape.pad_right = shape.pad_bottom;
    made.shape.dilation_h = 1;
    made.shape.dilation_w = shape.dilation_h;
    const bool is_stored_alike = made.shape.is_depthwise() == shape.is_depthwise();
    return is_stored_alike && src_distance(made) <= kMostApart ? made : spec;
}

std::unique_ptr<ConvPass> depthwise_forward_pass(const ConvSpec& spec) {
    return depthwise_images_pass(spec, PassKind::forward);
}

std::unique_ptr<ConvPass> make_pass(const ConvSpec& spec, PassKind pass,
                                    const WinogradChoice& choice) {
    if (is_int8(spec.dtype)) {
        if (pass != PassKind::forward) return nullptr;
        if (takes_patches(spec.problem())) return patched_forward_pass(spec);
        return rimmed_forward_pass(
            spec, spec.shape.is_depthwise() ? depthwise_forward_pass : quantized_forward_pass);
    }
    if (spec.shape.is_depthwise()) {
        if (pass == PassKind::backward_weights) return depthwise_weights_pass(spec);
        return depthwise_images_pass(spec, pass);
    }
    if (choice.tile != 0) return winograd_pass(spec, pass, choice.tile);
    switch (pass) {
        case PassKind::forward: return direct_forward_pass(spec);
        case PassKind::backward_data: return direct_data_pass(spec);
        default: return direct_weights_pass(spec);
    }
}

}  // namespace

Conv2d::Conv2d(const ConvSpec& spec) : spec_(within_limits(spec)) { pass(PassKind::forward); }

const WinogradChoice& Conv2d::choice(PassKind pass) const {
    Pass& it = passes_[index(pass)];
    std::call_once(it.chosen, [&] { it.choice = choose_winograd(spec_, pass); });
    return it.choice;
}

const ConvPass& Conv2d::pass(PassKind pass) const {
    Pass& it = passes_[index(pass)];
    std::call_once(it.made,
                   [&] { it.run = make_pass(with_columns_as_rows(spec_), pass, choice(pass)); });
    return *it.run;
}

std::vector<PassKind> Conv2d::passes() const {
    if (is_int8(spec_.dtype)) return {PassKind::forward};
    return {kPassKinds.begin(), kPassKinds.end()};
}

void Conv2d::forward(const ConvForward& it) const {
    pass(PassKind::forward)
        .run({.src = it.src,
              .weights = it.weights,
              .bias = it.bias,
              .residual = it.residual,
              .relu_mask = it.relu_mask,
              .transformed = it.transformed,
              .quantization = it.quantization,
              .result = it.dst});
}

void Conv2d::backward_data(const void* diff_dst, const void* weights, void* diff_src,
                           const float* transformed) const {
    pass(PassKind::backward_data)
        .run({.diff_dst = diff_dst,
              .weights = weights,
              .transformed = transformed,
              .result = diff_src});
}

void Conv2d::backward_weights(const void* src, const void* diff_dst, DType to,
                              void* diff_weights) const {
    pass(PassKind::backward_weights)
        .run({.src = src, .diff_dst = diff_dst, .to = to, .result = diff_weights});
}

Activations Conv2d::dst_activations() const {
    const ConvShape& shape = spec_.shape;
    return {shape.N, shape.P(), shape.Q(), dst_blocks(shape), spec_.dtype};
}

void Conv2d::backward_relu(ActivationBackward problem) const {
    problem.tensor = dst_activations();
    problem.layout = spec_.layout;
    problem.activation = Activation::relu;
    const bool sums = problem.diff_bias != nullptr;
    const WorkspacePool::Lease scratch(*workspaces_, sums ? relu_scratch_bytes() : 0);
    activation_backward(problem, scratch.data());
}

std::int64_t Conv2d::relu_scratch_bytes() const {
    return activation_backward_scratch_bytes(dst_activations(), spec_.layout);
}

ScheduledNest& Conv2d::nest(PassKind pass) const {
    const std::vector<PassKind> has = passes();
    if (std::find(has.begin(), has.end(), pass) == has.end()) {
        throw std::invalid_argument("an 8-bit convolution has no pass " +
                                    std::string(name_of(pass)) + ", expected 'forward'");
    }
    ScheduledNest* const nest = this->pass(pass).nest();
    if (nest == nullptr) {
        throw std::invalid_argument(
            "a depthwise convolution (groups equal to the channels) runs a fixed nest, expected "
            "no schedule for it");
    }
    return *nest;
}

std::string Conv2d::describe() const {
    const ChannelBlocks in = src_blocks(spec_.shape, spec_.dtype);
    const ChannelBlocks out = dst_blocks(spec_.shape, spec_.problem().result());
    std::string text = "blocks: C " + std::to_string(in.count()) + " x " +
                       std::to_string(in.block) + ", K " + std::to_string(out.count()) + " x " +
                       std::to_string(out.block) + "\n";
    if (spec_.shape.is_depthwise()) {
        return text + "depthwise: vectors along the channels, no kernel\n";
    }
    for (const PassKind pass : passes()) {
        text += described(std::string(name_of(pass)), nest(pass), {choice(pass).reason});
    }
    return text;
}

}  // namespace dlprim
