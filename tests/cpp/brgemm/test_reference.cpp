#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include "brgemm/reference.h"

namespace dlprim {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

using Matrix = std::vector<float>;

// Two products of 2x3 by 3x2 matrices, worked out by hand.
const Matrix kA = {1, 2, 3, 4, 5, 6, /* A_1 */ 1, 0, 0, 0, 1, 0};
const Matrix kB = {1, 0, 0, 1, 1, 1, /* B_1 */ 10, 20, 30, 40, 50, 60};
const Matrix kSum = {4 + 10, 5 + 20, 10 + 30, 11 + 40};
constexpr std::int64_t kStride = 6 * sizeof(float);

BrgemmSpec two_by_two(Addressing addressing) {
    return validated({.m = 2, .n = 2, .k = 3, .addressing = addressing});
}

TEST_CASE("the reference adds up the products that each addressing names") {
    Matrix c(4, kNaN);
    reference_brgemm(two_by_two(Addressing::stride), {.a = kA.data(),
                                                      .b = kB.data(),
                                                      .c = c.data(),
                                                      .batch = 2,
                                                      .stride_a = kStride,
                                                      .stride_b = kStride});
    CHECK(c == kSum);

    const std::array<std::int64_t, 2> offsets = {kStride, 0};
    c.assign(4, kNaN);
    reference_brgemm(two_by_two(Addressing::offset), {.a = kA.data(),
                                                      .b = kB.data(),
                                                      .c = c.data(),
                                                      .batch = 2,
                                                      .offsets_a = offsets.data(),
                                                      .offsets_b = offsets.data()});
    CHECK(c == kSum);

    const std::array<const float*, 2> as = {kA.data() + 6, kA.data()};
    const std::array<const float*, 2> bs = {kB.data() + 6, kB.data()};
    c.assign(4, kNaN);
    reference_brgemm(two_by_two(Addressing::address),
                     {.a = as.data(), .b = bs.data(), .c = c.data(), .batch = 2});
    CHECK(c == kSum);
}

TEST_CASE("the reference reads a transposed A") {
    const Matrix a = {1, 4, 2, 5, 3, 6};
    Matrix c(4, kNaN);
    reference_brgemm(validated({.m = 2, .n = 2, .k = 3, .trans_a = true}),
                     {.a = a.data(), .b = kB.data(), .c = c.data(), .batch = 1});
    CHECK(c == Matrix{4, 5, 10, 11});
}

TEST_CASE("the reference respects leading dimensions") {
    const Matrix a = {1, 2, kNaN, 3, 4};
    const Matrix b = {1, kNaN, kNaN, 2};
    Matrix c = {0, -1, -1, -1, 0};
    reference_brgemm(validated({.m = 2, .n = 1, .k = 2, .lda = 3, .ldb = 3, .ldc = 4}),
                     {.a = a.data(), .b = b.data(), .c = c.data(), .batch = 1});
    CHECK(c == Matrix{5, -1, -1, -1, 11});
}

TEST_CASE("the reference's epilogue is beta*C, then bias, then relu") {
    const Matrix bias = {-100, 1};
    const BrgemmSpec spec = validated({.m = 1,
                                       .n = 2,
                                       .k = 3,
                                       .beta = 1,
                                       .epilogue = {.bias = true, .activation = Activation::relu}});
    Matrix c = {10, 20};
    reference_brgemm(
        spec, {.a = kA.data(), .b = kB.data(), .c = c.data(), .batch = 1, .bias = bias.data()});
    CHECK(c == Matrix{0, 26});
    c = {101, -2};
    reference_brgemm(spec, {.c = c.data(), .batch = 0, .bias = bias.data()});
    CHECK(c == Matrix{1, 0});
}

TEST_CASE("the reference's relu keeps NaN") {
    const BrgemmSpec spec = validated(
        {.m = 1, .n = 1, .k = 1, .beta = 1, .epilogue = {.activation = Activation::relu}});
    float c = kNaN;
    reference_brgemm(spec, {.c = &c, .batch = 0});
    CHECK(std::isnan(c));
}

TEST_CASE("the reference's bfloat16 is the upper half of a float, rounded to nearest even") {
    const std::array<std::uint16_t, 3> a = {0x3f80, 0x4000, 0x4040};  // 1, 2, 3
    // Packed pairs of one column: (1, -2), (0.5, and what may stand behind the last element).
    const std::array<std::uint16_t, 4> b = {0x3f80, 0xc000, 0x3f00, 0x7fff};
    BrgemmSpec spec = validated({.m = 1,
                                 .n = 1,
                                 .k = 3,
                                 .a_type = DType::bf16,
                                 .b_type = DType::bf16,
                                 .c_type = DType::bf16});
    std::uint16_t c = 0;
    reference_brgemm(spec, {.a = a.data(), .b = b.data(), .c = &c, .batch = 1});
    CHECK(c == 0xbfc0);  // 1 - 4 + 1.5 = -1.5
}

TEST_CASE("the reference's int8 subtracts zero points, scales, rounds and saturates") {
    const std::array<std::uint8_t, 2> a = {200, 3};
    const std::array<std::int8_t, 4> b = {-100, 50, 77, 77};  // k = 2: the last two are padding
    BrgemmSpec spec = validated({.m = 1,
                                 .n = 1,
                                 .k = 2,
                                 .a_type = DType::u8,
                                 .b_type = DType::s8,
                                 .c_type = DType::s32,
                                 .zero_point_a = true,
                                 .zero_point_b = true});
    std::int32_t sum = 0;
    BrgemmArgs args{.a = a.data(), .b = b.data(), .c = &sum, .batch = 1};
    args.zero_point_a = 1;
    args.zero_point_b = -10;
    reference_brgemm(spec, args);
    CHECK(sum == 199 * -90 + 2 * 60);

    spec.b_type = DType::u8;  // 156, 50
    reference_brgemm(spec, args);
    CHECK(sum == 199 * 166 + 2 * 60);
    spec.a_type = DType::s8;  // -56, 3
    reference_brgemm(spec, args);
    CHECK(sum == -57 * 166 + 2 * 60);
    spec.a_type = DType::u8;
    spec.b_type = DType::s8;

    spec.c_type = DType::s8;
    spec.epilogue.scale = Scale::tensor;
    std::int8_t narrow = 0;
    args.c = &narrow;
    float scale = 1;
    args.scale = &scale;
    reference_brgemm(spec, args);
    CHECK(narrow == -128);
    args.zero_point_a = 0;  // 200 * -90 + 3 * 60 = -17820
    scale = 7;
    args.batch = 0;
    reference_brgemm(spec, args);
    CHECK(narrow == 0);
    args.batch = 1;
    scale = -1.0F / 8192;  // 2.175
    reference_brgemm(spec, args);
    CHECK(narrow == 2);
}

}  // namespace
}  // namespace dlprim
