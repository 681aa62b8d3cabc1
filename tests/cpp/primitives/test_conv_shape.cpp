#include <cstdint>
#include <stdexcept>
#include <string>

#include <doctest/doctest.h>

#include "primitives/conv/conv_shape.h"

namespace dlprim {
namespace {

ConvShape valid() {
    return {.N = 2,
            .C = 12,
            .H = 9,
            .W = 7,
            .K = 18,
            .R = 3,
            .S = 5,
            .stride_h = 2,
            .stride_w = 3,
            .pad_top = 1,
            .pad_bottom = 2,
            .pad_left = 3,
            .pad_right = 4,
            .dilation_h = 2,
            .dilation_w = 1,
            .groups = 3};
}

// Output positions at which the whole filter lies in the padded input.
std::int64_t positions(std::int64_t padded, std::int64_t filter, std::int64_t dilation,
                       std::int64_t stride) {
    std::int64_t count = 0;
    for (std::int64_t at = 0; at + (filter - 1) * dilation < padded; at += stride) ++count;
    return count;
}

void refused(const ConvShape& shape, const char* sentence) {
    CHECK_THROWS_WITH_AS(validated(shape), sentence, std::invalid_argument);
}

TEST_CASE("a possible shape comes back as it is") {
    CHECK(validated(valid()) == valid());
    ConvShape empty = valid();
    empty.N = 0;
    CHECK(validated(empty) == empty);
    CHECK(empty.flops() == 0);
}

TEST_CASE("P and Q count the positions of the filter") {
    for (std::int64_t padding = 0; padding < 4; ++padding) {
        for (std::int64_t stride = 1; stride < 5; ++stride) {
            for (std::int64_t dilation = 1; dilation < 4; ++dilation) {
                ConvShape shape = valid();
                shape.stride_h = stride;
                shape.stride_w = stride + 1;
                shape.pad_top = padding;
                shape.dilation_h = dilation;
                CHECK(validated(shape).P() == positions(9 + padding + 2, 3, dilation, stride));
                CHECK(shape.Q() == positions(7 + 3 + 4, 5, 1, stride + 1));
            }
        }
    }
}

TEST_CASE("groups and operations") {
    CHECK(valid().group_C() == 4);
    CHECK(valid().group_K() == 6);
    CHECK_FALSE(valid().is_depthwise());
    // N K P Q C/groups R S = 2 * 18 * 4 * 4 * 4 * 3 * 5
    CHECK(valid().flops() == 2.0 * 34560);
    ConvShape depthwise = valid();
    depthwise.K = depthwise.groups = depthwise.C;
    CHECK(depthwise.is_depthwise());
    depthwise.K = 24;
    CHECK_FALSE(depthwise.is_depthwise());
    CHECK_FALSE(ConvShape{.C = 1, .K = 1, .groups = 1}.is_depthwise());
}

TEST_CASE("every extent that is out of range is named with its value") {
    struct Field {
        const char* name;
        std::int64_t ConvShape::* member;
        std::int64_t least;
    };
    const Field fields[] = {
        {"N", &ConvShape::N, 0},
        {"C", &ConvShape::C, 1},
        {"H", &ConvShape::H, 1},
        {"W", &ConvShape::W, 1},
        {"K", &ConvShape::K, 1},
        {"R", &ConvShape::R, 1},
        {"S", &ConvShape::S, 1},
        {"stride_h", &ConvShape::stride_h, 1},
        {"stride_w", &ConvShape::stride_w, 1},
        {"pad_top", &ConvShape::pad_top, 0},
        {"pad_bottom", &ConvShape::pad_bottom, 0},
        {"pad_left", &ConvShape::pad_left, 0},
        {"pad_right", &ConvShape::pad_right, 0},
        {"dilation_h", &ConvShape::dilation_h, 1},
        {"dilation_w", &ConvShape::dilation_w, 1},
        {"groups", &ConvShape::groups, 1},
    };
    for (const Field& field : fields) {
        for (const std::int64_t value :
             {field.least - 1, std::int64_t{INT64_MIN}, std::int64_t{1} << 31}) {
            ConvShape shape = valid();
            shape.*field.member = value;
            const std::string sentence = std::string(field.name) + "=" + std::to_string(value) +
                                         ", expected an integer from " +
                                         std::to_string(field.least) + " to 2^31 - 1";
            refused(shape, sentence.c_str());
        }
    }
}

TEST_CASE("groups must divide both numbers of channels") {
    ConvShape shape = valid();
    shape.C = 13;
    refused(shape, "groups=3 must divide C=13, but a remainder of 1 is left");
    shape = valid();
    shape.K = 20;
    refused(shape, "groups=3 must divide K=20, but a remainder of 2 is left");
}

TEST_CASE("the filter must fit into the padded input") {
    ConvShape shape = valid();
    shape.dilation_h = 6;  // 13 rows in 9 + 1 + 2
    refused(shape,
            "the filter covers 13 rows (R=3, dilation_h=6), but the padded input has only 12 "
            "(H=9, padding 3)");
    shape.H = 10;
    CHECK(validated(shape).P() == 1);
    shape = valid();
    shape.S = 15;
    refused(shape,
            "the filter covers 15 columns (S=15, dilation_w=1), but the padded input has only 14 "
            "(W=7, padding 7)");
}

TEST_CASE("no tensor would have more than 2^40 elements") {
    const std::int64_t large = std::int64_t{1} << 20;
    const ConvShape full{
        .N = 1, .C = 1, .H = large, .W = large, .K = 1, .R = 1, .S = 1, .stride_w = large};
    CHECK(validated(full) == full);
    ConvShape shape = full;
    shape.N = 2;
    refused(shape, "src of N=2, C=1, H=1048576, W=1048576 would have more than 2^40 elements");
    shape = full;
    shape.K = large + 1;
    refused(shape, "dst of N=1, K=1048577, P=1048576, Q=1 would have more than 2^40 elements");
    shape = {.N = 0, .C = large, .H = 1, .W = 1, .K = large, .R = 1, .S = 2, .pad_left = 1};
    refused(shape,
            "weights of K=1048576, C/groups=1048576, R=1, S=2 would have more than 2^40 elements");
    const std::int64_t most = (std::int64_t{1} << 31) - 1;
    shape = {.N = most, .C = most, .H = most, .W = most, .K = most, .R = 1, .S = 1};
    CHECK_THROWS_AS(validated(shape), std::invalid_argument);
}

}  // namespace
}  // namespace dlprim
