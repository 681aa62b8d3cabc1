// Packed weights of a convolution as blocks: where each is in packed and in plain storage, and how
// much of it exists. Several files go through them, in different orders.
#pragma once

#include <algorithm>
#include <cstdint>

#include "primitives/conv/conv_layout.h"
#include "primitives/tensor/partition.h"

namespace dlprim {

// The packed blocks of a shape that is not depthwise.
struct WeightBlocks {
    ChannelBlocks C;
    ChannelBlocks K;
    std::int64_t taps;   // R * S
    std::int64_t size;   // bytes of an element
    std::int64_t group;  // neighbours along bc that are side by side; 1 in plain order

    WeightBlocks(const ConvShape& shape, DType dtype, std::int64_t neighbours)
        : C(src_blocks(shape)),
          K(dst_blocks(shape)),
          taps(shape.R * shape.S),
          size(size_of(dtype)),
          group(neighbours) {}

    std::int64_t count() const { return K.count() * C.per_group(); }
    std::int64_t matrix_bytes() const { return rounded_up(C.block, group) * K.block * size; }
    std::int64_t bytes() const { return taps * matrix_bytes(); }
};

// A few channels c of one block, all its channels k and taps.
struct WeightPiece {
    std::int64_t plain;       // byte offset in plain weights, a row for each k
    std::int64_t packed;      // byte offset of the first tap in packed weights
    std::int64_t channels_c;  // those that exist, maybe none
    std::int64_t channels_k;
    std::int64_t rows;  // channels c with those of the padding
};

inline WeightPiece piece_at(const WeightBlocks& blocks, std::int64_t block, Range range) {
    const std::int64_t k = block / blocks.C.per_group(), c = block % blocks.C.per_group();
    const std::int64_t group = k / blocks.K.per_group(), k_in_group = k % blocks.K.per_group();
    const std::int64_t first_k = group * blocks.K.channels + k_in_group * blocks.K.block;
    const std::int64_t first_c = c * blocks.C.block + range.begin;
    const std::int64_t left = blocks.C.in_block(c) - range.begin;
    return {.plain = (first_k * blocks.C.channels + first_c) * blocks.taps * blocks.size,
            .packed = block * blocks.bytes() + range.begin * blocks.K.block * blocks.size,
            .channels_c = std::clamp<std::int64_t>(left, 0, range.size()),
            .channels_k = blocks.K.in_block(k_in_group),
            .rows = range.size()};
}

}  // namespace dlprim
