// Where a depthwise convolution's pixels are, in one form for both layouts: the three passes differ
// in what they do with a row of pixels and not in how they find it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "jit/machine.h"
#include "primitives/conv/conv_contraction.h"
#include "primitives/depthwise/depthwise_rows.h"
#include "primitives/tensor/partition.h"

namespace dlprim {

inline DepthwiseAxis vertical(const ConvShape& shape) {
    return {shape.R, shape.stride_h, shape.dilation_h, shape.pad_top, shape.H, shape.P()};
}

inline DepthwiseAxis horizontal(const ConvShape& shape) {
    return {shape.S, shape.stride_w, shape.dilation_w, shape.pad_left, shape.W, shape.Q()};
}

// Distances in an activation tensor with the problem's channels, in elements.
struct Plane : ActivationStrides {
    std::int64_t element = 0;  // bytes

    // In bytes.
    std::int64_t offset(std::int64_t n, std::int64_t b, std::int64_t h, std::int64_t w) const {
        return (n * image + b * block + h * row + w * pixel) * element;
    }
};

inline Plane plane(const ConvProblem& problem, std::int64_t height, std::int64_t width) {
    return {activation_strides(problem.layout, src_blocks(problem.shape), height, width),
            size_of(problem.dtype)};
}

inline Plane src_plane(const ConvProblem& problem) {
    return plane(problem, problem.shape.H, problem.shape.W);
}
inline Plane dst_plane(const ConvProblem& problem) {
    return plane(problem, problem.shape.P(), problem.shape.Q());
}

inline const char* at(const void* tensor, std::int64_t offset) {
    return static_cast<const char*>(tensor) + offset;
}
inline char* at(void* tensor, std::int64_t offset) { return static_cast<char*>(tensor) + offset; }

// Blocks that are worked on together, row by row: those of one pixel lie side by side where the
// layout is channels-last, share cache lines and arrive as one stream.
inline Blocks block_groups(const ConvProblem& problem) {
    constexpr std::int64_t kPixelBytes = 512;
    const ChannelBlocks blocks = src_blocks(problem.shape);
    const std::int64_t bytes = blocks.block * size_of(problem.dtype);
    const bool apart = problem.layout == Format::blocked;
    return {blocks.count(), apart ? 1 : std::max<std::int64_t>(kPixelBytes / bytes, 1)};
}

// Whether rows are prefetched: from memory it halves the time, from the L2 cache it gains a tenth,
// from the L3 cache it costs a fifth (Zen 5).
inline bool fetches_rows(const ConvProblem& problem) {
    constexpr double kShare = 1.0 / 4;  // of the L3 cache, that is likely to hold activations
    const Machine& machine = this_machine();
    const auto bytes = static_cast<double>(problem.shape.N *
                                           (src_plane(problem).image + dst_plane(problem).image) *
                                           size_of(problem.dtype));
    return bytes < machine.l2 / 2 || bytes > kShare * machine.l3;
}

// How far ahead of its use a row is prefetched: far enough for the latency of memory.
inline std::int64_t rows_ahead(std::int64_t width) {
    constexpr std::int64_t kPixels = 28;
    return (kPixels + width - 1) / width;
}

}  // namespace dlprim
