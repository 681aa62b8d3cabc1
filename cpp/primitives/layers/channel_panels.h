// Activations of either layout as one shape of storage, images x blocks x pixels x channels, and
// the pieces of it that a pass takes at a time. Layers that treat all pixels of a channel alike
// (batch normalisation, the gradient through relu) are written once, on this. Pieces depend on the
// shape alone, so sums per piece, combined in a fixed order, are the same bits for any number of
// threads.
#pragma once

#include <cstdint>

#include "primitives/conv/conv_layout.h"
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

    std::int64_t pixel(std::int64_t image, std::int64_t block, std::int64_t pixel_of_image) const {
        return (image * blocks + block) * pixels + pixel_of_image;
    }
    // Channels of one block.
    Range channels(std::int64_t block) const;

private:
    ChannelBlocks channel_blocks_;
    bool is_blocked_;
};

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

    // body(pixel) for the images of a piece: their first pixel, counted from the tensor's.
    template <class Body>
    void for_images(std::int64_t piece, std::int64_t block, const Body& body) const {
        const Range these = images(piece);
        const std::int64_t first = pixels(piece).begin;
        for (std::int64_t image = these.begin; image < these.end; ++image) {
            body(panels_.pixel(image, block, first));
        }
    }

private:
    ChannelPanels panels_;
    std::int64_t groups_ = 1;  // of images
    std::int64_t parts_ = 1;   // of each image
};

}  // namespace dlprim
