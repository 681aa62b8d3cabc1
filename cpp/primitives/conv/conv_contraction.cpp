#include "primitives/conv/conv_contraction.h"

#include <limits>

#include "primitives/conv/conv_correlation.h"
#include "primitives/conv/joined_weights.h"
#include "primitives/nest/schedule_cost.h"

namespace dlprim {
namespace {

constexpr std::int64_t kAnyLength = std::numeric_limits<std::int64_t>::max();

Filter height_filter(const ConvShape& shape) {
    return {shape.R, shape.stride_h, shape.pad_top, shape.dilation_h};
}

Filter width_filter(const ConvShape& shape) {
    return {shape.S, shape.stride_w, shape.pad_left, shape.dilation_w};
}

}  // namespace

ActivationStrides activation_strides(Format layout, const ChannelBlocks& blocks,
                                     std::int64_t height, std::int64_t width) {
    ActivationStrides strides;
    if (layout == Format::nhwc) {
        strides.pixel = blocks.total();
        strides.row = width * strides.pixel;
        strides.block = blocks.block;
        strides.group = blocks.channels;
        strides.image = height * strides.row;
    } else {
        strides.pixel = blocks.block;
        strides.row = width * strides.pixel;
        strides.block = height * strides.row;
        strides.group = blocks.per_group() * strides.block;
        strides.image = blocks.groups * strides.group;
    }
    return strides;
}

ConvShape with_long_rows(const ConvShape& shape, std::int64_t most_pixels) {
    const bool pointwise = shape.R == 1 && shape.S == 1 && shape.stride_h == 1 &&
                           shape.stride_w == 1 && shape.H == shape.P() && shape.W == shape.Q();
    if (!pointwise || shape.pad_top != 0 || shape.pad_left != 0) return shape;
    ConvShape longer = shape;
    for (std::int64_t rows = shape.H; rows > 1; --rows) {
        if (shape.H % rows != 0 || shape.W * rows > most_pixels) continue;
        longer.H = shape.H / rows;
        longer.W = shape.W * rows;
        break;
    }
    return longer;
}

Contraction forward_contraction(const ConvProblem& problem, const Epilogue& epilogue) {
    const ConvShape shape = with_long_rows(problem.shape, kAnyLength);
    return contraction_of({.images = shape.N,
                           .in = src_blocks(shape),
                           .out = dst_blocks(shape),
                           .rows = forward_axis(shape.H, shape.P(), height_filter(shape)),
                           .pixels = forward_axis(shape.W, shape.Q(), width_filter(shape)),
                           .filter_height = shape.R,
                           .filter_width = shape.S,
                           .dtype = problem.dtype,
                           .layout = problem.layout,
                           .in_letter = 'c',
                           .out_letter = 'k',
                           .joined_weights = needs_joined_weights(problem)},
                          epilogue, shape.flops());
}

bool has_cells(const ConvProblem& problem) {
    const ConvShape& shape = problem.shape;
    const ChannelBlocks in = dst_blocks(shape);
    const ChannelBlocks out = src_blocks(shape);
    const std::int64_t element = size_of(problem.dtype);
    const ActivationStrides c = activation_strides(problem.layout, out, shape.H, shape.W);
    const bool pointwise = shape.R == 1 && shape.S == 1 && shape.pad_top == 0 &&
                           shape.pad_left == 0 && shape.P() * shape.stride_h == shape.H &&
                           shape.Q() * shape.stride_w == shape.W;
    const bool strided = shape.stride_w > 1;  // else rows can be cut, which is another nest
    const bool aligned = c.pixel * element % 64 == 0 && out.block * element % 64 == 0 &&
                         out.last() * element % 64 == 0 && out.channels * element % 64 == 0;
    const bool whole = problem.dtype == DType::f32 || in.channels % in.block == 0;
    const bool large = static_cast<double>(shape.N * c.image * element) > this_machine().l2;
    return pointwise && strided && aligned && whole && large;
}

Contraction cell_data_contraction(const ConvProblem& problem) {
    const ConvShape& shape = problem.shape;
    return contraction_of({.images = shape.N,
                           .in = dst_blocks(shape),
                           .out = src_blocks(shape),
                           .rows = forward_axis(shape.P(), shape.P(), {}),
                           .pixels = forward_axis(shape.Q(), shape.Q(), {}),
                           .filter_height = 1,
                           .filter_width = 1,
                           .dtype = problem.dtype,
                           .layout = problem.layout,
                           .in_letter = 'k',
                           .out_letter = 'c',
                           .cell_height = shape.stride_h,
                           .cell_width = shape.stride_w},
                          {}, shape.flops());
}

Contraction backward_data_contraction(const ConvProblem& problem) {
    const ConvShape shape = with_long_rows(problem.shape, kAnyLength);
    return contraction_of({.images = shape.N,
                           .in = dst_blocks(shape),
                           .out = src_blocks(shape),
                           .rows = backward_axis(shape.P(), shape.H, height_filter(shape)),
                           .pixels = backward_axis(shape.Q(), shape.W, width_filter(shape)),
                           .filter_height = shape.R,
                           .filter_width = shape.S,
                           .dtype = problem.dtype,
                           .layout = problem.layout,
                           .in_letter = 'k',
                           .out_letter = 'c'},
                          {}, shape.flops());
}

}  // namespace dlprim
