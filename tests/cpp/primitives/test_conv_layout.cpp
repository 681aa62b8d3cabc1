#include <cstdint>
#include <functional>

#include <doctest/doctest.h>

#include "guarded_elements.h"
#include "primitives/conv/conv_layout.h"
#include "primitives/conv/conv_weights.h"
#include "primitives/reorder/reorder.h"
#include "primitives/tensor/parallel.h"

namespace dlprim {
namespace {

using testing::differences;
using testing::Elements;
using testing::Fence;
using testing::kUntouched;

using Conversion = std::function<void(const void* from, void* to)>;
using Index = std::function<std::int64_t(std::int64_t)>;

struct RoundTrip {
    std::int64_t plain = 0;  // elements
    std::int64_t packed = 0;
    DType dtype = DType::f32;
    Index index;  // where an element of plain storage is in packed storage
    Conversion pack;
    Conversion unpack;
};

// Packed storage holds every element in its place and zeros elsewhere, unpacking ignores the
// padding and brings back all.
void check(const RoundTrip& trip) {
    CAPTURE(name_of(trip.dtype));
    for (const Fence fence : {Fence::before, Fence::after}) {
        Elements plain(trip.plain, trip.dtype, fence), back(trip.plain, trip.dtype, fence);
        Elements packed(trip.packed, trip.dtype, fence), expected(trip.packed, trip.dtype, fence);
        plain.number();
        expected.clear();
        for (std::int64_t i = 0; i < trip.plain; ++i) expected.set(trip.index(i), plain.at(i));
        trip.pack(plain.data(), packed.data());
        CHECK(differences(packed, expected) == 0);
        for (std::int64_t i = 0; i < trip.packed; ++i) {
            if (packed.at(i) == 0) packed.set(i, kUntouched);
        }
        trip.unpack(packed.data(), back.data());
        CHECK(differences(back, plain) == 0);
    }
}

// ---------------------------------------------------------------- blocks

TEST_CASE("blocks leave as little empty as they can") {
    const std::int64_t expected[][2] = {{1, 1},    {3, 3},    {63, 63},  {64, 64},   {65, 48},
                                        {96, 48},  {97, 64},  {100, 64}, {128, 64},  {130, 48},
                                        {144, 48}, {160, 32}, {257, 48}, {1000, 48}, {2048, 64}};
    for (const auto& [channels, block] : expected) {
        CHECK(channel_blocks(3, channels) == ChannelBlocks{3, channels, block});
    }
    for (std::int64_t channels = 65; channels < 700; ++channels) {
        const ChannelBlocks blocks = channel_blocks(2, channels);
        CHECK(blocks.last() >= 1);
        CHECK(blocks.last() <= blocks.block);
        for (const std::int64_t other : {64, 48, 32}) {
            const std::int64_t stored = blocks.per_group() * blocks.block;
            const std::int64_t would = (channels + other - 1) / other * other;
            CHECK((stored < would || (stored == would && blocks.block >= other)));
        }
    }
}

TEST_CASE("channels of a depthwise convolution count as one group") {
    ConvShape shape{.N = 1, .C = 96, .H = 1, .W = 1, .K = 192, .R = 1, .S = 1, .groups = 3};
    CHECK(src_blocks(shape) == ChannelBlocks{3, 32, 32});
    CHECK(dst_blocks(shape) == ChannelBlocks{3, 64, 64});
    shape.K = shape.groups = 96;
    CHECK(src_blocks(shape) == ChannelBlocks{1, 96, 48});
    CHECK(dst_blocks(shape) == ChannelBlocks{1, 96, 48});
}

// ---------------------------------------------------------------- activations

TensorForm form_of(const Activations& it, Format format) {
    const ConvShape shape{.N = it.images,
                          .C = it.blocks.total(),
                          .H = it.height,
                          .W = it.width,
                          .K = 2 * it.blocks.groups,
                          .R = 1,
                          .S = 1,
                          .groups = it.blocks.groups};
    return dlprim::form_of(conv_forms({shape, it.dtype, format}), "src");
}

void check_activations(const Activations& activations) {
    const ChannelBlocks& blocks = activations.blocks;
    const std::int64_t pixels = activations.height * activations.width, total = blocks.total();
    const auto split = [=](std::int64_t i, std::int64_t* image, std::int64_t* channel) {
        *image = i / pixels / total;
        *channel = i / pixels % total;
        return i % pixels;
    };
    CAPTURE(total);
    CAPTURE(blocks.groups);
    CAPTURE(pixels);
    RoundTrip trip{.plain = activations.images * total * pixels, .dtype = activations.dtype};
    trip.packed = activations.images * blocks.count() * pixels * blocks.block;
    trip.index = [=](std::int64_t i) {
        std::int64_t n = 0, c = 0;
        const std::int64_t pixel = split(i, &n, &c), within = c % blocks.channels;
        const std::int64_t b = c / blocks.channels * blocks.per_group() + within / blocks.block;
        return ((n * blocks.count() + b) * pixels + pixel) * blocks.block + within % blocks.block;
    };
    const auto reorder_as = [&](Format format) {
        const TensorForm form = form_of(activations, format);
        trip.pack = [=](const void* x, void* y) { reorder(form.plain, x, form.packed, y); };
        trip.unpack = [=](const void* x, void* y) { reorder(form.packed, x, form.plain, y); };
    };
    reorder_as(Format::blocked);
    check(trip);

    trip.packed = trip.plain;
    trip.index = [=](std::int64_t i) {
        std::int64_t n = 0, c = 0;
        const std::int64_t pixel = split(i, &n, &c);
        return (n * pixels + pixel) * total + c;
    };
    reorder_as(Format::nhwc);
    check(trip);
}

TEST_CASE("activations of every number of channels") {
    struct Image {
        std::int64_t height;
        std::int64_t width;
    };
    for (const DType dtype : {DType::f32, DType::bf16}) {
        for (const std::int64_t channels :
             {1, 2, 3, 4, 5, 8, 12, 17, 31, 33, 64, 65, 96, 100, 130, 257}) {
            for (const Image& image : {Image{1, 1}, {1, 3}, {7, 7}, {4, 8}, {5, 13}}) {
                check_activations(
                    {2, image.height, image.width, channel_blocks(1, channels), dtype});
            }
        }
        for (const std::int64_t groups : {2, 3}) {
            for (const std::int64_t channels : {1, 17, 70}) {
                check_activations({2, 3, 11, channel_blocks(groups, channels), dtype});
            }
        }
    }
}

TEST_CASE("images that are cut into tasks, for any number of threads") {
    const int before = num_threads();
    for (const int threads : {1, 2, 3}) {
        set_num_threads(threads);
        for (const DType dtype : {DType::f32, DType::bf16}) {
            check_activations({1, 33, 37, channel_blocks(1, 100), dtype});
            check_activations({1, 201, 99, channel_blocks(1, 3), dtype});
            check_activations({9, 5, 5, channel_blocks(1, 65), dtype});
        }
    }
    set_num_threads(before);
}

TEST_CASE("no images are no work") {
    const Activations none{0, 5, 5, channel_blocks(1, 70), DType::f32};
    const TensorForm blocked = form_of(none, Format::blocked), nhwc = form_of(none, Format::nhwc);
    reorder(blocked.plain, nullptr, blocked.packed, nullptr);
    reorder(nhwc.packed, nullptr, nhwc.plain, nullptr);
}

// ---------------------------------------------------------------- pixel pairs

void check_pairs(const PixelPairs& wanted) {
    CAPTURE(wanted.channels);
    CAPTURE(wanted.first);
    CAPTURE(wanted.step);
    CAPTURE(wanted.count);
    const std::int64_t rows = (wanted.count + 1) / 2;
    for (const Fence fence : {Fence::before, Fence::after}) {
        PixelPairs pairs = wanted;
        Elements row((pairs.width - 1) * pairs.ld + pairs.channels, DType::bf16, fence);
        row.number();
        const std::int64_t size = ((rows - 1) * pairs.ld_out + pairs.channels) * 2;
        Elements out(size, DType::bf16, fence), expected(size, DType::bf16, fence);
        for (std::int64_t i = 0; i < 2 * rows; ++i) {
            const std::int64_t pixel = pairs.first + i * pairs.step;
            const bool exists = i < pairs.count && pixel >= 0 && pixel < pairs.width;
            for (std::int64_t c = 0; c < pairs.channels; ++c) {
                expected.set((i / 2 * pairs.ld_out + c) * 2 + i % 2,
                             exists ? row.at(pixel * pairs.ld + c) : 0);
            }
        }
        pairs.row = static_cast<const std::uint16_t*>(row.data());
        pairs.out = static_cast<std::uint16_t*>(out.data());
        pack_pixel_pairs(pairs);
        CHECK(differences(out, expected) == 0);
    }
}

TEST_CASE("pixel pairs, inside and outside the row") {
    for (const std::int64_t channels : {1, 3, 17, 48, 64}) {
        for (const std::int64_t step : {1, 2, 3}) {
            for (const std::int64_t first : {-11, -3, -2, -1, 0, 1, 6, 8, 20}) {
                for (const std::int64_t count : {1, 2, 5, 8, 9}) {
                    check_pairs({.width = 8,
                                 .ld = channels + 2,
                                 .channels = channels,
                                 .first = first,
                                 .step = step,
                                 .count = count,
                                 .ld_out = channels + 1});
                }
            }
        }
    }
}

}  // namespace
}  // namespace dlprim
