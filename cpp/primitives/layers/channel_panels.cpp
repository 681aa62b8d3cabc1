#include "primitives/layers/channel_panels.h"

#include <algorithm>

namespace dlprim {
namespace {

// Fewer would leave too little work beside the sums of a piece.
constexpr std::int64_t kFewestPixels = 32;

}  // namespace

ChannelPanels::ChannelPanels(const Activations& tensor, Format layout)
    : channel_blocks_(tensor.blocks), is_blocked_(layout == Format::blocked) {
    const std::int64_t area = tensor.height * tensor.width;
    images = is_blocked_ ? tensor.images : 1;
    blocks = is_blocked_ ? tensor.blocks.count() : 1;
    pixels = is_blocked_ ? area : tensor.images * area;
    width = is_blocked_ ? tensor.blocks.block : tensor.blocks.total();
}

Range ChannelPanels::channels(std::int64_t block) const {
    if (!is_blocked_) return {0, channel_blocks_.total()};
    const std::int64_t group = block / channel_blocks_.per_group();
    const std::int64_t first = group * channel_blocks_.channels +
                               block % channel_blocks_.per_group() * channel_blocks_.block;
    return {first, std::min(first + channel_blocks_.block, (group + 1) * channel_blocks_.channels)};
}

PixelPieces::PixelPieces(const ChannelPanels& panels, DType dtype, std::int64_t bytes,
                         std::int64_t most)
    : panels_(panels), element_(size_of(dtype)) {
    const std::int64_t limit = std::clamp(bytes / (panels.width * element_), kFewestPixels, most);
    groups_ = Blocks{panels.images, std::max<std::int64_t>(limit / panels.pixels, 1)}.count();
    parts_ = Blocks{panels.pixels, limit}.count();
}

}  // namespace dlprim
