// Activations of either layout as one shape of storage, images x blocks x pixels x channels, and
// the pieces of it that a pass takes at a time. Layers that treat all pixels of a channel alike
// (batch normalisation, the gradient through relu) are written once, on this. Pieces depend on the
// shape alone, so sums per piece, combined in a fixed order, are the same bits for any number of
// threads.
#pragma once

#include <cstdint>

#include "brgemm/spec.h"
#include "primitives/tensor/channel_blocks.h"
#include "primitives/tensor/layout.h"
#include "primitives/tensor/parallel.h"
#include "primitives/tensor/partition.h"

namespace dlprim {

// Channels-last is one block of one long image.
struct ChannelPanels {
    ChannelPanels(const Activations& tensor, Format layout);

    std::int64_t images = 0;
    std::int64_t blocks = 0;
    std::int64_t pixels = 0;  // of an image
    std::int64_t width = 0;   // channels from pixel to pixel, those that fill up a block included

    // Channels of one block.
    Range channels(std::int64_t block) const;

private:
    ChannelBlocks channel_blocks_;
    bool is_blocked_;
};

// What a program has of a piece, some pixels of a block: one after the other, with vectors along
// their channels. A channel's sum is one chain over the pixels, so its bits are the same for every
// width. Pointers are at the first channel of the first pixel, those of
// per-channel arrays at the first channel.
struct PixelRows {
    std::int64_t pixels = 0;
    std::int64_t channels = 0;
    std::int64_t distance = 0;       // elements from pixel to pixel
    std::int64_t mask_distance = 0;  // bytes
    const void* src = nullptr;
    const void* diff_dst = nullptr;
    const void* diff_addend = nullptr;  // add_gradients: of diff_dst, or null
    const void* residual = nullptr;     // or null
    // Backward. Of relu the result or the mask, or neither: then all passes. Of other activations
    // the result or the argument.
    const void* saved = nullptr;
    const std::uint8_t* relu_mask = nullptr;
    void* out = nullptr;  // dst, diff_src or what passed, which may be null; may be an operand
    std::uint8_t* relu_mask_out = nullptr;
    const float* mean = nullptr;
    const float* scale = nullptr;  // weight * inverse_std
    const float* bias = nullptr;
    const float* mean_diff = nullptr;   // backward: mean of what passed,
    const float* mean_slope = nullptr;  // and of that times (src - mean), over the variance
    float* sums = nullptr;              // of src - mean, or of what passed
    float* products = nullptr;          // of (src - mean)^2, or of what passed times (src - mean)
    bool relu = false;
};

// What a task reads of one tensor: see pack.cpp.
inline constexpr std::int64_t kPieceBytes = 128 * 1024;
// Of rows of float32 sums, which begin on cache lines.
inline constexpr std::int64_t kLineFloats = 16;

// How the pixels of every block are cut: a piece is several images or a part of one, and all are
// alike but for one image or pixel, so that threads have equal shares. Of at least one pixel.
class PixelPieces {
public:
    // Pieces of a block of at most `bytes` and at most `most` pixels, but of some pixels at least.
    PixelPieces(const ChannelPanels& panels, DType dtype, std::int64_t bytes, std::int64_t most);

    std::int64_t count() const { return groups_ * parts_; }
    Range images(std::int64_t piece) const {
        return chunk(panels_.images, groups_, piece / parts_);
    }
    Range pixels(std::int64_t piece) const { return chunk(panels_.pixels, parts_, piece % parts_); }
    std::int64_t size(std::int64_t piece) const {
        return images(piece).size() * pixels(piece).size();
    }

    // body(piece, block) in the order of the memory (images, blocks, parts of an image), or each
    // thread against it: what it touched last is in the caches of its core.
    template <class Body>
    void for_each(Range blocks, TaskOrder order, const Body& body) const {
        parallel_for(
            count() * blocks.size(),
            [&](std::int64_t task) {
                const std::int64_t block = blocks.begin + task / parts_ % blocks.size();
                body(task / parts_ / blocks.size() * parts_ + task % parts_, block);
            },
            order);
    }

    // Of every image of a piece.
    PixelRows rows(std::int64_t piece, std::int64_t block) const {
        return {.pixels = pixels(piece).size(),
                .channels = panels_.channels(block).size(),
                .distance = panels_.width,
                .mask_distance = mask_width()};
    }
    // body(bytes from the begin of a tensor, bytes from the begin of a mask) for the images of a
    // piece. A mask has a bit per element, in whole bytes per pixel.
    template <class Body>
    void for_images(std::int64_t piece, std::int64_t block, const Body& body) const {
        const Range these = images(piece);
        const std::int64_t first = pixels(piece).begin;
        for (std::int64_t image = these.begin; image < these.end; ++image) {
            const std::int64_t pixel = (image * panels_.blocks + block) * panels_.pixels + first;
            body(pixel * panels_.width * element_, pixel * mask_width());
        }
    }

private:
    std::int64_t mask_width() const { return (panels_.width + 7) / 8; }

    ChannelPanels panels_;
    std::int64_t element_;     // bytes
    std::int64_t groups_ = 1;  // of images
    std::int64_t parts_ = 1;   // of each image
};

}  // namespace dlprim
