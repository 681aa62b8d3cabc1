#include "primitives/conv/conv_weights_scratch.h"

#include <array>

namespace dlprim {
namespace {

std::int64_t image_bytes(const ConvProblem& problem) {
    const ConvShape& shape = problem.shape;
    const ActivationStrides src =
        activation_strides(problem.layout, src_blocks(shape), shape.H, shape.W);
    const ActivationStrides dst =
        activation_strides(problem.layout, dst_blocks(shape), shape.P(), shape.Q());
    return (src.image + dst.image) * size_of(problem.dtype);
}

}  // namespace

WeightsScratch weights_scratch(const ConvProblem& problem) {
    const ConvShape& shape = problem.shape;
    const ChannelBlocks in = src_blocks(shape);
    const ChannelBlocks out = dst_blocks(shape);
    WeightsScratch made{
        .weights = packed_weights_size(shape, DType::f32) * size_of(DType::f32),
        .image = image_bytes(problem),
    };
    const std::array<std::int64_t, 3> extents = {in.groups, out.per_group(), in.per_group()};
    while (made.loop < 2 && extents[static_cast<std::size_t>(made.loop)] == 1) ++made.loop;
    const std::int64_t extent = extents[static_cast<std::size_t>(made.loop)];
    made.slices = {extent, made.weights > made.image ? (extent + 1) / 2 : extent};
    return made;
}

}  // namespace dlprim
