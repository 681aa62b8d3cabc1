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

}  // namespace
}  // namespace dlprim
