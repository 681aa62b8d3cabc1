#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

#include "primitives/layers/channel_panels.h"

namespace dlprim {
namespace {

Activations activations(std::int64_t images, std::int64_t channels, std::int64_t height,
                        std::int64_t width) {
    return {images, height, width, channel_blocks(1, channels), DType::f32};
}

TEST_CASE("the channels of all blocks are all channels") {
    for (const std::int64_t channels : {1, 17, 64, 65, 130, 2048}) {
        const ChannelPanels panels(activations(2, channels, 3, 3), Format::blocked);
        std::int64_t next = 0;
        for (std::int64_t block = 0; block < panels.blocks; ++block) {
            CHECK(panels.channels(block).begin == next);
            next = panels.channels(block).end;
        }
        CHECK(next == channels);
        const ChannelPanels last(activations(2, channels, 3, 3), Format::nhwc);
        CHECK(last.channels(0) == Range{0, channels});
        CHECK(last.pixels == 18);
    }
}

TEST_CASE("pieces take every pixel of every image once") {
    for (const Format layout : {Format::blocked, Format::nhwc}) {
        for (const std::int64_t side : {1, 2, 7, 40}) {
            for (const std::int64_t images : {1, 3, 8}) {
                const ChannelPanels panels(activations(images, 100, side, side), layout);
                const PixelPieces pieces(panels, DType::f32, 64 * 1024, 128);
                std::vector<int> taken(static_cast<std::size_t>(panels.images * panels.pixels));
                for (std::int64_t piece = 0; piece < pieces.count(); ++piece) {
                    const Range some = pieces.images(piece), pixels = pieces.pixels(piece);
                    CHECK(pieces.size(piece) == some.size() * pixels.size());
                    CHECK(pieces.size(piece) <= 128);
                    for (std::int64_t image = some.begin; image < some.end; ++image) {
                        for (std::int64_t i = pixels.begin; i < pixels.end; ++i) {
                            ++taken[static_cast<std::size_t>(image * panels.pixels + i)];
                        }
                    }
                }
                for (const int times : taken) CHECK(times == 1);
            }
        }
    }
}

}  // namespace
}  // namespace dlprim
