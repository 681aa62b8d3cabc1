// Where a depthwise convolution's pixels are, in one form for both layouts: the three passes differ
// in what they do with a row of pixels and not in how they find it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "primitives/conv/conv_contraction.h"
#include "primitives/tensor/partition.h"
#include "rows/row_args.h"

namespace dlprim {

// One axis of a convolution.
struct DepthwiseAxis {
    std::int64_t taps = 0;
    std::int64_t step = 1;    // stride
    std::int64_t spread = 1;  // dilation
    std::int64_t before = 0;  // padding
    std::int64_t extent = 0;  // of src
    std::int64_t results = 0;

    // In src; outside of it where there is padding.
    std::int64_t position(std::int64_t result, std::int64_t tap) const {
        return result * step + tap * spread - before;
    }
};

inline DepthwiseAxis vertical(const ConvShape& shape) {
    return {shape.R, shape.stride_h, shape.dilation_h, shape.pad_top, shape.H, shape.P()};
}

inline DepthwiseAxis horizontal(const ConvShape& shape) {
    return {shape.S, shape.stride_w, shape.dilation_w, shape.pad_left, shape.W, shape.Q()};
}

// What one result sees along an axis, or, in backward-data, the results that are a stride apart and
// so see the same taps: tap first_tap + i * every at `position` + i * `spread` of what is read.
struct SeenTaps {
    std::int64_t taps = 0;
    std::int64_t first_tap = 0;
    std::int64_t every = 1;
    std::int64_t position = 0;  // may be negative
    std::int64_t spread = 1;
};

// Without the taps outside of an axis that is so long.
inline SeenTaps inside(SeenTaps seen, std::int64_t extent) {
    const auto below = [&](std::int64_t bound) {
        return std::clamp<std::int64_t>((bound - seen.position + seen.spread - 1) / seen.spread, 0,
                                        seen.taps);
    };
    const std::int64_t before = below(0);
    seen.taps = below(extent) - before;
    seen.first_tap += before * seen.every;
    seen.position += before * seen.spread;
    return seen;
}

// Bytes between neighbours of an activation tensor with the problem's channels.
struct Plane : ActivationStrides {
    std::int64_t offset(std::int64_t n, std::int64_t b, std::int64_t h, std::int64_t w) const {
        return n * image + b * block + h * row + w * pixel;
    }
};

inline Plane plane(const ConvProblem& problem, DType dtype, std::int64_t height,
                   std::int64_t width) {
    Plane it{activation_strides(problem.layout, src_blocks(problem.shape, dtype), height, width)};
    for (std::int64_t* const distance : {&it.image, &it.block, &it.row, &it.pixel}) {
        *distance *= size_of(dtype);
    }
    return it;
}

inline Plane src_plane(const ConvProblem& problem) {
    return plane(problem, problem.dtype, problem.shape.H, problem.shape.W);
}
inline Plane dst_plane(const ConvProblem& problem) {
    return plane(problem, problem.result(), problem.shape.P(), problem.shape.Q());
}

// Of the bits of dst, eight channels in a byte.
inline Plane mask_plane(const ConvProblem& problem) {
    const ChannelBlocks blocks = src_blocks(problem.shape);
    const ChannelBlocks bytes{1, (blocks.channels + 7) / 8, (blocks.block + 7) / 8};
    return {activation_strides(problem.layout, bytes, problem.shape.P(), problem.shape.Q())};
}

// An operand of a row program, so many bytes from the begin of a tensor.
inline RowArgs::Operand operand(const void* tensor, std::int64_t offset, std::int64_t stride) {
    return {const_cast<char*>(static_cast<const char*>(tensor)) + offset, stride};
}

// Blocks that are worked on together, row by row: those of one pixel lie side by side where the
// layout is channels-last, share cache lines and arrive as one stream.
inline Blocks block_groups(const ConvProblem& problem) {
    constexpr std::int64_t kPixelBytes = 512;
    const ChannelBlocks blocks = src_blocks(problem.shape, problem.dtype);
    const std::int64_t bytes = blocks.block * size_of(problem.dtype);
    const bool apart = problem.layout == Format::blocked;
    return {blocks.count(), apart ? 1 : std::max<std::int64_t>(kPixelBytes / bytes, 1)};
}

}  // namespace dlprim
