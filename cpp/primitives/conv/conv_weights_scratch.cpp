#include "primitives/conv/conv_weights_scratch.h"

#include <algorithm>
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

WeightsDivision divided(const WeightsScratch& scratch, const SummedImages& images,
                        std::int64_t parts, DType to) {
    WeightsDivision made{.parts = parts, .index_elements = scratch.elements(), .to = to};
    made.at_once = (images.count + parts - 1) / parts;
    if (images.packed_bytes > 0) {
        // As much of them as of the weights, which are read and written once for all.
        const std::int64_t worth = 1 + scratch.weights / images.packed_bytes;
        const std::int64_t room = parts > 1 ? scratch.room_beside(parts, to) : scratch.room(to);
        made.at_once = std::clamp<std::int64_t>(
            made.at_once, std::min<std::int64_t>(images.count, 1),
            std::max<std::int64_t>(std::min(worth, room / images.packed_bytes), 1));
    }
    if (parts == 1 && scratch.is_sliced(to)) {
        made.slices = scratch.slices;
        made.index_elements /= scratch.slices.extent;
    }
    return made;
}

}  // namespace dlprim
