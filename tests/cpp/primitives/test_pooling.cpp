#include <array>
#include <cstdint>
#include <stdexcept>

#include <doctest/doctest.h>

#include "primitives/layers/dropout.h"
#include "primitives/layers/pooling.h"

namespace dlprim {
namespace {

Pooling pooling(std::int64_t size, std::int64_t window, std::int64_t stride, std::int64_t pad) {
    return {.src = {1, size, size, channel_blocks(1, 1), DType::f32},
            .R = window,
            .S = window,
            .stride_h = stride,
            .stride_w = stride,
            .pad_h = pad,
            .pad_w = pad};
}

TEST_CASE("impossible windows are refused") {
    CHECK_NOTHROW(validate(pooling(8, 3, 2, 1)));
    CHECK_THROWS_AS(validate(pooling(8, 3, 2, 2)), std::invalid_argument);
    CHECK_THROWS_AS(validate(pooling(8, 0, 1, 0)), std::invalid_argument);
    CHECK_THROWS_AS(validate(pooling(8, 3, 0, 0)), std::invalid_argument);
    CHECK_THROWS_AS(validate(pooling(2, 3, 1, 0)), std::invalid_argument);
    CHECK_THROWS_AS(validate(pooling(99, 17, 1, 0)), std::invalid_argument);
}

TEST_CASE("a maximum and its gradient, worked out by hand") {
    const std::array<float, 9> src = {1, 5, 2, 5, 3, 4, 0, 6, 6};
    std::array<float, 4> dst = {};
    std::array<std::uint8_t, 4> taps = {};
    const Pooling it = pooling(3, 2, 1, 0);
    pool_forward(it)({.src = src.data(), .dst = dst.data(), .taps_out = taps.data()});
    CHECK(dst == std::array<float, 4>{5, 5, 6, 6});
    CHECK(taps == std::array<std::uint8_t, 4>{1, 0, 3, 2});
    const std::array<float, 4> diff_dst = {1, 2, 4, 8};
    std::array<float, 9> diff_src = {};
    pool_backward(it)({.src = diff_dst.data(), .dst = diff_src.data(), .taps = taps.data()});
    CHECK(diff_src == std::array<float, 9>{0, 3, 0, 0, 0, 0, 0, 12, 0});
}

TEST_CASE("philox gives its authors' known answer") {
    CHECK(philox({0, 0, 0, 0}, {0, 0}) ==
          std::array<std::uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
}

}  // namespace
}  // namespace dlprim
