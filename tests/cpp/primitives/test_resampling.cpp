#include <array>
#include <stdexcept>

#include <doctest/doctest.h>

#include "primitives/layers/resampling.h"

namespace dlprim {
namespace {

// Rows 0 and 1 halved and row 1 alone, of columns the last; one result reads nothing.
Windows windows() {
    return {.src = {1, 2, 3, channel_blocks(1, 1), DType::f32},
            .layout = Format::nhwc,
            .rows = {{0, 1}, {0, 2, 3}, {0.5F, 0.5F, 1}},
            .columns = {{0, 1, 2}, {0, 0, 2, 3}, {1, -1, 2}}};
}

TEST_CASE("weighted windows, worked out by hand") {
    const std::array<float, 6> src = {1, 2, 4, 3, 6, 10};
    std::array<float, 6> dst = {9, 9, 9, 9, 9, 9};
    Resampling(windows(), Fold::sum)({.src = src.data(), .dst = dst.data()});
    CHECK(dst == std::array<float, 6>{0, -3, 14, 0, -4, 20});
}

TEST_CASE("windows beyond what they read are refused") {
    Windows beyond = windows();
    beyond.rows.begins = {0, 2};
    CHECK_THROWS_AS(Resampling(beyond, Fold::sum), std::invalid_argument);
    Windows before = windows();
    before.columns.begins = {0, -1, 2};
    CHECK_THROWS_AS(Resampling(before, Fold::sum), std::invalid_argument);
    Windows ragged = windows();
    ragged.rows.weights.pop_back();
    CHECK_THROWS_AS(Resampling(ragged, Fold::sum), std::invalid_argument);
    Windows empty = windows();
    empty.rows.places = {};
    CHECK_THROWS_AS(Resampling(empty, Fold::sum), std::invalid_argument);
    Windows backwards = windows();
    backwards.rows.places = {0, 4, 3};
    CHECK_THROWS_AS(Resampling(backwards, Fold::sum), std::invalid_argument);
}

}  // namespace
}  // namespace dlprim
