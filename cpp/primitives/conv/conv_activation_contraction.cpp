#include "primitives/conv/conv_contraction.h"

namespace dlprim {

Contraction activation_contraction(const ConvProblem& problem, const Epilogue& epilogue) {
    const ConvShape& shape = problem.shape;
    const ChannelBlocks groups = dst_blocks(shape);
    const bool nhwc = problem.layout == Format::nhwc;
    const ChannelBlocks blocks = nhwc ? channel_blocks(1, shape.K) : groups;
    const ActivationStrides c = activation_strides(problem.layout, blocks, shape.P(), shape.Q());
    const std::int64_t element = size_of(problem.dtype);
    const std::int64_t mask_pixel = ((nhwc ? shape.K : blocks.block) + 7) / 8;
    const auto mask = [&](std::int64_t elements) { return elements / c.pixel * mask_pixel; };
    Contraction made;
    made.loops = {
        {.letter = 'g', .extent = blocks.groups, .c = c.group * element, .mask = mask(c.group)},
        {.letter = 'n', .extent = shape.N, .c = c.image * element, .mask = mask(c.image)},
        {.letter = 'k',
         .extent = blocks.per_group(),
         .c = c.block * element,
         .mask = nhwc ? blocks.block / 8 : mask(c.block)},
        {.letter = 'p', .extent = shape.P(), .c = c.row * element, .mask = mask(c.row)},
    };
    made.columns = {.loop = 2, .unit = blocks.block, .total = blocks.channels};
    made.block_rows = shape.Q();
    made.selections = {{}};
    made.classes = {{{.m = shape.Q(), .first = true, .last = true}}};
    made.dtype = problem.dtype;
    made.c_type = problem.dtype;
    made.ldc = c.pixel;
    made.ldmask = mask_pixel;
    made.accumulates = true;
    made.epilogue = epilogue;
    return made;
}

}  // namespace dlprim
