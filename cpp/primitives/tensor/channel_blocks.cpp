#include "primitives/tensor/channel_blocks.h"

#include <algorithm>

namespace dlprim {
namespace {

// Vectors of the largest block, and of a block that is not cut for being ragged: the second block
// would cost a bfloat16 sum a detour over float32.
constexpr std::int64_t kLargest = 4;
constexpr std::int64_t kLargestSingle = 8;
// Vectors of a block instead of two, where it divides: a call on a few samples does more.
constexpr std::int64_t kWide = 5;
constexpr std::int64_t kNarrow = 2;
constexpr std::int64_t kWordBytes = 4;

}  // namespace

ChannelBlocks channel_blocks(std::int64_t groups, std::int64_t channels, std::int64_t lanes) {
    if (channels <= kLargest * lanes) return {groups, channels, channels};
    ChannelBlocks best{groups, channels, kLargest * lanes};
    for (const std::int64_t vectors : {3, 2}) {
        const ChannelBlocks candidate{groups, channels, vectors * lanes};
        if (candidate.per_group() * candidate.block < best.per_group() * best.block) {
            best = candidate;
        }
    }
    return best;
}

ChannelBlocks typed_channel_blocks(std::int64_t groups, std::int64_t channels, DType dtype) {
    const std::int64_t whole = is_int8(dtype) ? rounded_up(channels, kWordBytes) : channels;
    return {groups, channels, channel_blocks(groups, whole).block};
}

ChannelBlocks linear_blocks(std::int64_t channels, std::int64_t lanes) {
    const ChannelBlocks blocks = channel_blocks(1, channels, lanes);
    const bool whole = blocks.block < channels && channels % blocks.block == 0;
    if (channels > kLargestSingle * lanes || whole) {
        const bool wide = blocks.block == kNarrow * lanes && channels % (kWide * lanes) == 0;
        return {1, channels, wide ? kWide * lanes : blocks.block};
    }
    const std::int64_t unit = channels < lanes ? 2 : lanes;
    return {1, channels, std::max(rounded_up(channels, unit), unit)};
}

ChannelBlocks depth_blocks(std::int64_t channels, DType dtype, std::int64_t lanes) {
    if (!is_int8(dtype)) return linear_blocks(channels, lanes);
    return {1, channels, rounded_up(std::max<std::int64_t>(channels, 1), kWordBytes)};
}

std::int64_t panel_width(std::int64_t channels, std::int64_t lanes) {
    const std::int64_t widest = kLargest * lanes;
    const std::int64_t count = (channels + widest - 1) / widest;
    return rounded_up((channels + count - 1) / count, lanes);
}

}  // namespace dlprim
