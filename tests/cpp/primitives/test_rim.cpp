#include <cstddef>
#include <cstdint>

#include <doctest/doctest.h>

#include "primitives/reorder/rim.h"
#include "primitives/tensor/channel_blocks.h"
#include "primitives/tensor/quantization.h"
#include "typed_problem.h"

namespace dlprim {
namespace {

using testing::Fence;
using testing::GuardedBytes;

// Whether `dst` is a copy of `rim.planes` images, byte by byte, but for what fills up pixels.
bool is_copy(const Rim& rim, const std::byte* src, const std::byte* dst, std::byte value) {
    for (std::int64_t i = 0; i < rim.bytes(); ++i) {
        const std::int64_t byte = i % rim.wide_pixel_bytes;
        const std::int64_t line = i / rim.wide_row_bytes();
        const std::int64_t column = i % rim.wide_row_bytes() / rim.wide_pixel_bytes - rim.before;
        const std::int64_t row = line % rim.wide_rows() - rim.above;
        const bool inside = row >= 0 && row < rim.rows && column >= 0 && column < rim.pixels;
        if (inside && byte >= rim.pixel_bytes) continue;
        const std::int64_t from =
            ((line / rim.wide_rows() * rim.rows + row) * rim.pixels + column) * rim.pixel_bytes;
        if (dst[i] != (inside ? src[from + byte] : value)) return false;
    }
    return true;
}

TEST_CASE("images with a rim") {
    for (const Rim& rim :
         {Rim{3, 5, 7, 1, 1, 1, 2, 3, 4}, Rim{1, 1, 1, 1, 1, 0, 0, 0, 1}, Rim{2, 3, 4, 1, 1},
          Rim{70, 40, 1, 64, 64, 1, 1, 1, 1}, Rim{0, 3, 4, 1, 1, 1, 1, 1, 1},
          Rim{2, 9, 9, 3, 4, 3, 3, 3, 3}, Rim{2, 4, 5, 1, 4, 1, 0, 1, 0}, Rim{1, 2, 1, 2, 4},
          Rim{3, 4, 6, 13, 16, 1, 1, 1, 1}}) {
        for (const Fence fence : {Fence::before, Fence::after}) {
            const GuardedBytes src(rim.planes * rim.rows * rim.row_bytes(), fence);
            const GuardedBytes dst(rim.bytes(), fence);
            for (std::int64_t i = 0; i < src.size(); ++i) {
                src.data()[i] = static_cast<std::byte>(i * 7 % 251);
            }
            copy_with_rim(rim, src.data(), 128, dst.data());
            CHECK(is_copy(rim, src.data(), dst.data(), std::byte{128}));
        }
    }
}

TEST_CASE("a result is kept inside its type, and relu is a bound") {
    const ResultRange whole = held_range({.zero_point = 5}, DType::u8, Activation::none);
    CHECK(whole.lowest == -5);
    CHECK(whole.highest == 250);
    const ResultRange relu = held_range({.zero_point = -3}, DType::s8, Activation::relu);
    CHECK(relu.lowest == 0);
    CHECK(relu.highest == 130);
    const ResultRange clip = held_range({-500, 6, 0}, DType::s8, Activation::none);
    CHECK(clip.lowest == -128);
    CHECK(clip.highest == 6);
}

TEST_CASE("8-bit blocks are whole words and those of whole words") {
    for (std::int64_t channels = 1; channels < 300; ++channels) {
        const ChannelBlocks blocks = typed_channel_blocks(2, channels, DType::s8);
        CHECK(blocks.channels == channels);
        CHECK(blocks.block % 4 == 0);
        const std::int64_t stored = blocks.per_group() * blocks.block;
        CHECK(typed_channel_blocks(2, stored, DType::s8).block == blocks.block);
        CHECK(stored < channels + 64);
        CHECK(typed_channel_blocks(2, channels, DType::f32) == channel_blocks(2, channels));
    }
}

}  // namespace
}  // namespace dlprim
