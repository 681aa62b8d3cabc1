#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "cases.h"
#include "conv_problem.h"
#include "conv_shapes.h"
#include "primitives/conv/conv2d.h"
#include "primitives/tensor/parallel.h"

namespace dlprim {
namespace {

using testing::ConvFused;
using testing::ConvOperands;
using testing::ConvOracle;
using testing::ConvResults;
using testing::Fence;
using testing::first_layer;
using testing::for_specs;
using testing::pointwise;
using testing::several_blocks;
using testing::Threads;
using testing::Values;

void check_equal(const ConvResults& left, const ConvResults& right) {
    CHECK((left.dst == right.dst));
    CHECK((left.mask == right.mask));
    CHECK((left.diff_src == right.diff_src));
    CHECK((left.diff_weights == right.diff_weights));
    CHECK((left.diff_weights_float == right.diff_weights_float));
}

// Few blocks of diff_weights, so the minibatch is shared.
ConvShape many_images() {
    return validated({.N = 19, .C = 5, .H = 12, .W = 12, .K = 4, .R = 3, .S = 2, .pad_top = 1});
}

// Pairs of pixels that exceed any L2 cache's share.
ConvShape large_image() {
    return validated({.N = 2, .C = 96, .H = 57, .W = 40, .K = 4, .R = 3, .S = 3, .pad_top = 1});
}

TEST_CASE("random shapes: all passes agree with sums in double, and touch nothing else") {
    std::mt19937 random(1);
    for (unsigned i = 0; i < testing::cases(100); ++i) {
        const Threads threads(i % 4 == 0 ? 3 : 1);
        const ConvShape shape = validated(testing::drawn_conv_shape(random));
        const ConvOperands operands = testing::conv_operands(shape, Values::eighths, i);
        const ConvOracle oracle(shape, operands);
        for_specs(shape, [&](ConvSpec spec) {
            spec.bias = i % 2 == 0;
            if (i % 3 == 0) spec.activation = Activation::relu;
            const ConvFused fused{.residual = i % 4 < 2, .mask = i % 6 == 0};
            const Fence fence = i % 2 == 0 ? Fence::after : Fence::before;
            std::string fault;
            check_equal(testing::computed(Conv2d(spec), operands, fused, fence, fault),
                        oracle.results(spec, fused));
            CHECK(fault == "");
        });
    }
}

TEST_CASE("sums over parts of the minibatch and bands of images") {
    for (const ConvShape& shape : {many_images(), large_image()}) {
        const ConvOperands operands = testing::conv_operands(shape, Values::eighths, 11);
        const ConvOracle oracle(shape, operands);
        for_specs(shape, [&](const ConvSpec& spec) {
            std::string fault;
            check_equal(testing::computed(Conv2d(spec), operands, {}, Fence::after, fault),
                        oracle.results(spec, {}));
            CHECK(fault == "");
        });
    }
}

TEST_CASE("the bits do not depend on the number of threads") {
    for (const ConvShape& shape : {several_blocks(), first_layer(), pointwise(), many_images()}) {
        const ConvOperands operands = testing::conv_operands(shape, Values::reals, 8);
        for_specs(shape, [&](const ConvSpec& spec) {
            std::string fault;
            const Threads one(1);
            const ConvResults serial =
                testing::computed(Conv2d(spec), operands, {}, Fence::after, fault);
            for (const int count : {2, 3, 5}) {
                const Threads threads(count);
                check_equal(testing::computed(Conv2d(spec), operands, {}, Fence::after, fault),
                            serial);
            }
        });
    }
}

TEST_CASE("one object in several threads at once") {
    const ConvShape shape = several_blocks();
    for_specs(shape, [&](const ConvSpec& spec) {
        const Conv2d conv(spec);
        int wrong[4] = {};
        {
            std::vector<std::jthread> threads;
            for (unsigned i = 0; i < 4; ++i) {
                threads.emplace_back([&, i] {
                    const ConvOperands operands = testing::conv_operands(shape, Values::eighths, i);
                    const ConvResults expected = ConvOracle(shape, operands).results(spec, {});
                    for (int repeat = 0; repeat < 2; ++repeat) {
                        std::string fault;
                        wrong[i] +=
                            testing::computed(conv, operands, {}, Fence::after, fault) == expected
                                ? 0
                                : 1;
                    }
                });
            }
        }
        CHECK(
            std::all_of(std::begin(wrong), std::end(wrong), [](int count) { return count == 0; }));
    });
}

TEST_CASE("an empty minibatch has results of nothing and gradients of zeros") {
    for (ConvShape shape : {several_blocks(), first_layer(), pointwise()}) {
        shape.N = 0;
        const ConvOperands operands = testing::conv_operands(shape, Values::eighths, 9);
        const ConvOracle oracle(shape, operands);
        for_specs(shape, [&](const ConvSpec& spec) {
            std::string fault;
            check_equal(testing::computed(Conv2d(spec), operands, {}, Fence::after, fault),
                        oracle.results(spec, {}));
        });
    }
}

TEST_CASE("nothing is multiplied by padding") {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    const ConvShape shape = several_blocks();
    ConvOperands operands = testing::conv_operands(shape, Values::eighths, 10);
    for (std::vector<float>* const tensor :
         {&operands.src, &operands.weights, &operands.diff_dst}) {
        std::fill(tensor->begin(), tensor->end(), 1.0F);
    }
    // The first tap meets the first row and column of dst only where there is padding.
    for (std::size_t i = 0; i < operands.weights.size(); i += 9) operands.weights[i] = kInfinity;
    for (std::size_t i = 0; i < operands.diff_dst.size(); i += 42) operands.diff_dst[i] = kInfinity;
    const ConvOracle oracle(shape, operands);
    for_specs(shape, [&](const ConvSpec& spec) {
        std::string fault;
        ConvResults results = testing::computed(Conv2d(spec), operands, {}, Fence::after, fault);
        const ConvResults expected = oracle.results(spec, {});
        if (spec.dtype == DType::bf16) {
            // Pairs of pixels are filled up with zeros there, and zeros times infinity are NaN.
            results.diff_weights = expected.diff_weights;
            results.diff_weights_float = expected.diff_weights_float;
        }
        check_equal(results, expected);
    });
}

}  // namespace
}  // namespace dlprim
