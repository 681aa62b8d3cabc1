// The kernel contract, checked on every ISA level that this machine runs and on the plans for
// every microarchitecture, whether or not it is this machine's.
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "brgemm/brgemm.h"
#include "cases.h"
#include "guarded_memory.h"
#include "kernel_problem.h"

namespace dlprim {
namespace {

using testing::all_kernels;
using testing::Fence;
using testing::GuardedMemory;
using testing::KernelProblem;

struct Shape {
    std::int64_t m;
    std::int64_t n;
    std::int64_t k;
};

const std::vector<Shape> kShapes = {
    // one element, one row, one column, one step
    {1, 1, 1},
    {1, 64, 64},
    {64, 1, 64},
    {64, 64, 1},
    // a vector less one, a vector, a vector and one: of AVX2, of AVX-512, of four of them
    {3, 7, 5},
    {3, 8, 5},
    {3, 9, 5},
    {4, 15, 7},
    {4, 16, 7},
    {4, 17, 7},
    {5, 63, 3},
    {5, 64, 3},
    {5, 65, 3},
    // primes and awkward sizes
    {17, 13, 19},
    {31, 37, 29},
    {5, 100, 33},
    {13, 67, 11},
    // around the tallest tiles of one to four vectors
    {6, 32, 9},
    {7, 32, 9},
    {14, 32, 9},
    {15, 48, 9},
    {28, 16, 9},
    {29, 16, 9},
    {32, 16, 9},
    {61, 8, 9},
    // k around the quads, the straight-line bound and the loop's unrolling
    {2, 16, 2},
    {2, 16, 3},
    {2, 16, 4},
    {6, 16, 6},
    {1, 1, 449},
    {2, 16, 225},
    {6, 64, 33},
    {28, 16, 35},
    {1, 16, 1000},
    // what drivers ask for
    {16, 16, 16},
    {32, 32, 32},
    {28, 64, 64},
    {49, 64, 64},
    {24, 64, 64},
};

std::int64_t pick(std::uint32_t number, std::initializer_list<std::int64_t> values) {
    return values.begin()[number % values.size()];
}

// The options of a spec, counted through by the bits of `number`.
BrgemmSpec with_options(const Shape& shape, std::uint32_t number, std::int64_t gap) {
    BrgemmSpec spec{.m = shape.m, .n = shape.n, .k = shape.k};
    spec.trans_a = (number & 1) != 0;
    spec.beta = (number & 2) != 0 ? 1 : 0;
    spec.epilogue.bias = (number & 4) != 0;
    spec.epilogue.activation = (number & 8) != 0 ? Activation::relu : Activation::none;
    spec.addressing = static_cast<Addressing>(number / 16 % 3);
    spec.lda = spec.a_columns() + gap;
    spec.ldb = spec.n + gap;
    spec.ldc = spec.n + gap;
    return spec;
}

constexpr std::uint32_t kOptions = 16 * 3;

void check_all_kernels(const KernelProblem& problem) {
    for (const Brgemm& kernel : all_kernels(problem.spec())) {
        CHECK(problem.mismatch(kernel) == "");
    }
}

TEST_CASE("every option of every shape is right and stays inside its operands") {
    if (const std::string skipped = testing::skipped_levels(); !skipped.empty()) {
        MESSAGE("skipped, not usable here:", skipped);
    }
    std::uint32_t turn = 0;
    for (const Shape& shape : kShapes) {
        for (std::uint32_t options = 0; options < kOptions; ++options, ++turn) {
            const BrgemmSpec spec = with_options(shape, options, pick(turn / 5, {0, 0, 3, 16}));
            const Fence fence = turn / 3 % 2 == 0 ? Fence::after : Fence::before;
            check_all_kernels({spec, pick(turn, {1, 2, 3, 0, 5}), fence, turn});
        }
    }
}

TEST_CASE("random shapes are right") {
    std::mt19937 engine(20240229);
    const auto below = [&](std::uint32_t bound) {
        return static_cast<std::uint32_t>(engine()) % bound;
    };
    for (std::uint32_t turn = 0; turn < testing::cases(2000); ++turn) {
        const std::uint32_t deepest = turn % 10 == 0 ? 500 : 70;
        const Shape shape = {1 + below(70), 1 + below(140), 1 + below(deepest)};
        const BrgemmSpec spec = with_options(shape, below(kOptions), pick(turn, {0, 1, 7}));
        const Fence fence = below(2) == 0 ? Fence::after : Fence::before;
        check_all_kernels({spec, pick(below(5), {1, 1, 2, 4, 0}), fence, turn});
    }
}

// float32 values that round: the error of any order of summation is bounded by the sum of the
// absolute values.
TEST_CASE("sums of fractions are as accurate as their length allows") {
    constexpr std::int64_t k = 1000;
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    std::vector<float> a(3 * k);
    std::vector<float> b(k * 20);
    for (float& value : a) value = normal(random);
    for (float& value : b) value = normal(random);
    for (const Brgemm& kernel : all_kernels({.m = 3, .n = 20, .k = k})) {
        std::vector<float> c(60);
        kernel({.a = a.data(), .b = b.data(), .c = c.data(), .batch = 1});
        for (std::size_t i = 0; i < c.size(); ++i) {
            double sum = 0;
            double absolute = 0;
            for (std::size_t step = 0; step < k; ++step) {
                const double product = double{a[i / 20 * k + step]} * double{b[step * 20 + i % 20]};
                sum += product;
                absolute += std::abs(product);
            }
            CHECK(std::abs(c[i] - sum) <= 4 * std::sqrt(double{k}) * 0x1p-24 * absolute);
        }
    }
}

TEST_CASE("a stride may be zero or negative") {
    const std::vector<float> a = {1, 2, 3, 4};
    const std::vector<float> b = {10, 20, 30, 40};
    for (const Brgemm& kernel : all_kernels({.m = 1, .n = 1, .k = 1})) {
        float c = 0;
        kernel({.a = &a[1], .b = b.data(), .c = &c, .batch = 4, .stride_a = 0, .stride_b = 4});
        CHECK(c == 2 * 100);
        kernel({.a = &a[3], .b = b.data(), .c = &c, .batch = 4, .stride_a = -4, .stride_b = 4});
        CHECK(c == 4 * 10 + 3 * 20 + 2 * 30 + 1 * 40);
    }
}

TEST_CASE("NaN and Inf propagate as IEEE says, also through relu") {
    constexpr float nan = std::numeric_limits<float>::quiet_NaN();
    constexpr float inf = std::numeric_limits<float>::infinity();
    for (const Activation activation : {Activation::none, Activation::relu}) {
        const BrgemmSpec spec{.m = 3, .n = 18, .k = 5, .epilogue = {.activation = activation}};
        for (const Brgemm& kernel : all_kernels(spec)) {
            std::vector<float> a(15, 1);
            std::vector<float> b(90, 1);
            std::vector<float> c(54, nan);
            a[1 * 5 + 2] = nan;    // row 1 becomes NaN
            b[3 * 18 + 17] = inf;  // column 17 becomes Inf
            a[2 * 5 + 3] = 0;      // except where 0 * Inf is NaN
            kernel({.a = a.data(), .b = b.data(), .c = c.data(), .batch = 1});
            CHECK(c[0] == 5);
            CHECK(c[17] == inf);
            for (std::size_t i = 18; i < 36; ++i) CHECK(std::isnan(c[i]));
            CHECK(c[36] == 4);
            CHECK(std::isnan(c[53]));
        }
    }
}

TEST_CASE("leading dimensions up to the bound are generated and right") {
    constexpr std::int64_t most = std::int64_t{1} << 24;
    for (const bool trans_a : {false, true}) {
        for (const Shape& shape :
             {Shape{33, 1, 9}, Shape{2, 17, 40}, Shape{1, 1, 100}, Shape{2, 17, 200}}) {
            const BrgemmSpec spec = validated({.m = shape.m,
                                               .n = shape.n,
                                               .k = shape.k,
                                               .lda = most,
                                               .ldb = most,
                                               .ldc = most,
                                               .trans_a = trans_a});
            const GuardedMemory a(span_a(spec) / 4, Fence::after);
            const GuardedMemory b(span_b(spec) / 4, Fence::after);
            const GuardedMemory c(span_c(spec) / 4, Fence::after);
            const std::int64_t a_row = trans_a ? 1 : most;
            const std::int64_t a_step = trans_a ? most : 1;
            a.data()[(spec.m - 1) * a_row + (spec.k - 1) * a_step] = 3;
            b.data()[(spec.k - 1) * most + spec.n - 1] = 5;
            for (const Brgemm& kernel : all_kernels(spec)) {
                float& last = c.data()[(spec.m - 1) * most + spec.n - 1];
                last = -1;
                kernel({.a = a.data(), .b = b.data(), .c = c.data(), .batch = 1});
                CHECK_MESSAGE(last == 15, to_string(kernel.plan()));
            }
        }
    }
}

TEST_CASE("kernels for the largest extents are generated") {
    constexpr std::int64_t most = (std::int64_t{1} << 31) - 1;
    constexpr std::int64_t most_row = std::int64_t{1} << 24;
    for (const bool trans_a : {false, true}) {
        for (const BrgemmSpec& spec : {
                 BrgemmSpec{.m = trans_a ? most_row : most, .n = most_row, .k = most_row},
                 BrgemmSpec{.m = 1, .n = 1, .k = trans_a ? most : most_row},
                 BrgemmSpec{.m = most_row, .n = most_row, .k = 1},
             }) {
            BrgemmSpec request = spec;
            request.trans_a = trans_a;
            CHECK_NOTHROW(all_kernels(request));
        }
    }
}

TEST_CASE("a kernel may run on many threads at once") {
    const BrgemmSpec spec{.m = 20, .n = 35, .k = 17, .epilogue = {.bias = true}};
    for (const Brgemm& kernel : all_kernels(spec)) {
        std::vector<std::string> mismatches(8);
        {
            std::vector<std::jthread> threads;
            for (std::size_t i = 0; i < mismatches.size(); ++i) {
                threads.emplace_back([&, i] {
                    const KernelProblem problem(spec, 3, Fence::after,
                                                static_cast<std::uint32_t>(i));
                    for (int repeat = 0; repeat < 20 && mismatches[i].empty(); ++repeat) {
                        mismatches[i] = problem.mismatch(kernel);
                    }
                });
            }
        }
        for (const std::string& mismatch : mismatches) CHECK(mismatch == "");
    }
}

}  // namespace
}  // namespace dlprim
