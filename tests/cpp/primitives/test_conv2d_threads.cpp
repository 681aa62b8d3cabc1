#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "primitives/conv/conv2d.h"
#include "primitives/tensor/parallel.h"

namespace dlprim {
namespace {

// A ragged bfloat16 convolution: every pass takes scratch for each thread.
ConvSpec ragged() {
    return {.shape = {.N = 2,
                      .C = 130,
                      .H = 8,
                      .W = 8,
                      .K = 130,
                      .R = 3,
                      .S = 3,
                      .pad_top = 1,
                      .pad_bottom = 1,
                      .pad_left = 1,
                      .pad_right = 1},
            .dtype = DType::bf16};
}

TEST_CASE("the number of threads may change while a convolution runs") {
    const int before = num_threads();
    const Conv2d conv(ragged());
    const ConvShape& shape = conv.spec().shape;
    const ChannelBlocks blocks = src_blocks(shape);
    const auto pixels = static_cast<std::size_t>(shape.N * blocks.count() * blocks.block * 64);
    const std::vector<std::uint16_t> ones(pixels, 0x3f80);
    const auto size = static_cast<std::size_t>(packed_weights_size(shape, DType::bf16));
    const std::vector<std::uint16_t> weights(size, 0x3c00);
    std::vector<std::uint16_t> dst(pixels);
    std::vector<std::uint16_t> diff_src(pixels);
    std::vector<float> diff_weights(
        static_cast<std::size_t>(packed_weights_size(shape, DType::f32)));
    std::atomic<bool> done{false};
    std::thread other([&] {
        while (!done) {
            set_num_threads(8);
            set_num_threads(1);
        }
    });
    for (int i = 0; i < 50; ++i) {
        conv.forward({.src = ones.data(), .weights = weights.data(), .dst = dst.data()});
        conv.backward_data(ones.data(), weights.data(), diff_src.data());
        conv.backward_weights(ones.data(), ones.data(), DType::f32, diff_weights.data());
    }
    done = true;
    other.join();
    set_num_threads(before);
    const auto middle = static_cast<std::size_t>(4 * blocks.block * blocks.block);
    CHECK(diff_weights[middle] == 128);  // the middle tap meets every pixel
}

}  // namespace
}  // namespace dlprim
