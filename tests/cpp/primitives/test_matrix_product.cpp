#include <algorithm>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include <doctest/doctest.h>

#include "primitives/matrix_product.h"
#include "primitives/parallel.h"

namespace dlprim {
namespace {

using Matrix = std::vector<float>;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

struct Case {
    std::int64_t m;
    std::int64_t n;
    std::int64_t k;
    bool trans_a = false;
    bool bias = false;
    Activation activation = Activation::none;
    std::int64_t gap = 0;  // between the rows of every matrix
};

// Small integers: every order of summation gives the same float32.
Matrix integers(std::int64_t elements, std::uint32_t seed) {
    std::minstd_rand random(seed);
    Matrix matrix(static_cast<std::size_t>(elements));
    for (float& value : matrix) value = static_cast<float>(static_cast<int>(random() % 9) - 4);
    return matrix;
}

struct Operands {
    Matrix a;
    Matrix b;
    Matrix c;
    Matrix bias;
    MatrixProduct product;
};

Operands operands(const Case& test) {
    const std::int64_t a_rows = test.trans_a ? test.k : test.m;
    const std::int64_t lda = (test.trans_a ? test.m : test.k) + test.gap;
    const std::int64_t ldn = test.n + test.gap;
    Operands all{.a = integers(a_rows * lda, 1),
                 .b = integers(test.k * ldn, 2),
                 .c = Matrix(static_cast<std::size_t>(test.m * ldn), kNaN),
                 .bias = integers(test.n, 3),
                 .product = {}};
    all.product = {.m = test.m,
                   .n = test.n,
                   .k = test.k,
                   .a = all.a.data(),
                   .lda = lda,
                   .trans_a = test.trans_a,
                   .b = all.b.data(),
                   .ldb = ldn,
                   .c = all.c.data(),
                   .ldc = ldn,
                   .bias = test.bias ? all.bias.data() : nullptr,
                   .activation = test.activation};
    return all;
}

double expected(const MatrixProduct& product, std::int64_t row, std::int64_t column) {
    double sum = product.bias == nullptr ? 0 : double{product.bias[column]};
    for (std::int64_t step = 0; step < product.k; ++step) {
        const std::int64_t at =
            product.trans_a ? step * product.lda + row : row * product.lda + step;
        sum += double{product.a[at]} * double{product.b[step * product.ldb + column]};
    }
    return product.activation == Activation::relu ? std::max(sum, 0.0) : sum;
}

int wrong_elements(const MatrixProduct& product) {
    int wrong = 0;
    for (std::int64_t row = 0; row < product.m; ++row) {
        for (std::int64_t column = 0; column < product.n; ++column) {
            const double c = product.c[row * product.ldc + column];
            if (c != expected(product, row, column)) ++wrong;
        }
    }
    return wrong;
}

TEST_CASE("products of any size are right") {
    const std::vector<Case> cases = {
        {1, 1, 1},
        {2, 3, 4},
        {17, 13, 19},
        // around the blocks of 64 rows, 64 columns and 1024 steps
        {63, 64, 65},
        {64, 65, 63},
        {65, 129, 64},
        {128, 128, 128},
        {3, 5, 1023},
        {3, 5, 1024},
        {3, 5, 1025},
        {66, 70, 2049},
        // an empty sum
        {5, 70, 0},
    };
    int turn = 0;
    for (Case test : cases) {
        for (int options = 0; options < 8; ++options, ++turn) {
            test.trans_a = (options & 1) != 0;
            test.bias = (options & 2) != 0;
            test.activation = (options & 4) != 0 ? Activation::relu : Activation::none;
            test.gap = turn % 3 == 0 ? 5 : 0;
            Operands all = operands(test);
            multiply(all.product);
            CAPTURE(test.m);
            CAPTURE(test.n);
            CAPTURE(test.k);
            CAPTURE(options);
            CHECK(wrong_elements(all.product) == 0);
        }
    }
}

TEST_CASE("nothing is written where there is nothing to compute") {
    Matrix c(4, 7);
    multiply({.m = 0, .n = 4, .k = 4, .c = c.data(), .ldc = 4});
    multiply({.m = 1, .n = 0, .k = 4, .c = c.data(), .ldc = 4});
    CHECK(c == Matrix(4, 7));
}

TEST_CASE("B may be packed in panels") {
    constexpr std::int64_t m = 5;
    constexpr std::int64_t n = kPanelColumns + 3;
    constexpr std::int64_t k = 7;
    Operands all = operands({.m = m, .n = n, .k = k});
    Matrix panels(2 * k * kPanelColumns, kNaN);
    for (std::int64_t step = 0; step < k; ++step) {
        for (std::int64_t column = 0; column < n; ++column) {
            const std::int64_t panel = column / kPanelColumns;
            panels[static_cast<std::size_t>((panel * k + step) * kPanelColumns +
                                            column % kPanelColumns)] =
                all.product.b[step * n + column];
        }
    }
    MatrixProduct packed = all.product;
    packed.b = panels.data();
    packed.ldb = kPanelColumns;
    packed.b_panel_stride = k * kPanelColumns;
    multiply(packed);
    CHECK(wrong_elements(all.product) == 0);
}

TEST_CASE("the bits do not depend on the number of threads") {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    Operands all = operands({.m = 130, .n = 200, .k = 1100, .bias = true});
    for (float& value : all.a) value = normal(random);
    for (float& value : all.b) value = normal(random);
    const int before = num_threads();
    set_num_threads(1);
    multiply(all.product);
    const Matrix serial = all.c;
    for (const int threads : {2, 3, 4, 8}) {
        set_num_threads(threads);
        std::fill(all.c.begin(), all.c.end(), kNaN);
        multiply(all.product);
        CHECK(all.c == serial);
    }
    set_num_threads(before);
}

}  // namespace
}  // namespace dlprim
