// How channels are cut into blocks: the one place that decides it, from the number of channels and
// from the lanes of a vector. Blocks depend on nothing else, so that the result of one primitive is
// an operand of the next.
#pragma once

#include <cstdint>

#include "jit/dtype.h"
#include "primitives/tensor/partition.h"

namespace dlprim {

// Float32 values of the vector that blocks are made for, at every ISA level.
inline constexpr std::int64_t kBlockLanes = 16;

// Channels of one tensor, cut into blocks. Blocks never cross from one group into the next.
struct ChannelBlocks {
    std::int64_t groups = 1;
    std::int64_t channels = 0;  // of one group
    std::int64_t block = 1;

    std::int64_t per_group() const { return (channels + block - 1) / block; }
    std::int64_t count() const { return groups * per_group(); }
    std::int64_t total() const { return groups * channels; }
    // Channels in the last block of a group, and in any block of a group.
    std::int64_t last() const { return channels - (per_group() - 1) * block; }
    std::int64_t in_block(std::int64_t index) const {
        return index == per_group() - 1 ? last() : block;
    }

    friend bool operator==(const ChannelBlocks&, const ChannelBlocks&) = default;
};

// Of images: blocks of four vectors, or of three or two where those leave less of the last block
// empty; all channels in one block where there are no more than four vectors of them.
ChannelBlocks channel_blocks(std::int64_t groups, std::int64_t channels,
                             std::int64_t lanes = kBlockLanes);

// The same of a tensor of that type: in 8 bits blocks are whole words.
ChannelBlocks typed_channel_blocks(std::int64_t groups, std::int64_t channels, DType dtype);

// Of samples: four vectors, or three, five or two where those leave less of the last block empty.
// Up to four vectors, and up to eight that these do not divide, are one block of whole vectors, and
// fewer channels than a vector one of an even number.
ChannelBlocks linear_blocks(std::int64_t channels, std::int64_t lanes = kBlockLanes);

// What is one block in a sum over the channels of samples: 8-bit sums are rounded once, so all.
ChannelBlocks depth_blocks(std::int64_t channels, DType dtype, std::int64_t lanes = kBlockLanes);

// Of sequences: panels of equal width, whole vectors and at most four.
std::int64_t panel_width(std::int64_t channels, std::int64_t lanes = kBlockLanes);

// Activations, (images, channels, height, width) in plain storage.
struct Activations {
    std::int64_t images = 0;
    std::int64_t height = 0;
    std::int64_t width = 0;
    ChannelBlocks blocks;
    DType dtype = DType::f32;  // f32 or bf16
};

}  // namespace dlprim
