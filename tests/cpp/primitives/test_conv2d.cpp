#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "conv_problem.h"
#include "primitives/conv2d.h"
#include "primitives/parallel.h"

namespace dlprim {
namespace {

using testing::ConvFused;
using testing::ConvOperands;
using testing::ConvOracle;
using testing::ConvResults;
using testing::Fence;
using testing::Values;

std::string text_of(const ConvShape& shape) {
    std::string text;
    const auto add = [&](const char* name, std::int64_t value) {
        text += std::string(name) + std::to_string(value) + " ";
    };
    add("N", shape.N);
    add("C", shape.C);
    add("H", shape.H);
    add("W", shape.W);
    add("K", shape.K);
    add("R", shape.R);
    add("S", shape.S);
    add("strides ", shape.stride_h);
    add("", shape.stride_w);
    add("pads ", shape.pad_top);
    add("", shape.pad_bottom);
    add("", shape.pad_left);
    add("", shape.pad_right);
    add("dilations ", shape.dilation_h);
    add("", shape.dilation_w);
    add("groups ", shape.groups);
    return text;
}

// Both element types, in both layouts.
template <class Body>
void for_specs(const ConvShape& shape, const Body& body) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
        for (const Layout layout : {Layout::blocked, Layout::nhwc}) {
            ConvSpec spec{.shape = shape, .dtype = dtype, .layout = layout};
            CAPTURE(text_of(shape));
            CAPTURE(name_of(dtype));
            const bool nhwc = layout == Layout::nhwc;
            CAPTURE(nhwc);
            body(spec);
        }
    }
}

void check_equal(const ConvResults& left, const ConvResults& right) {
    CHECK((left.dst == right.dst));
    CHECK((left.mask == right.mask));
    CHECK((left.diff_src == right.diff_src));
    CHECK((left.diff_weights == right.diff_weights));
    CHECK((left.diff_weights_float == right.diff_weights_float));
}

// The row of a channels-last mask is divided by groups only at bytes.
bool can_have_mask(const ConvShape& shape) { return shape.groups == 1 || shape.group_K() % 8 == 0; }

class Threads {
public:
    explicit Threads(int count) : before_(num_threads()) { set_num_threads(count); }
    Threads(const Threads&) = delete;
    Threads& operator=(const Threads&) = delete;
    ~Threads() { set_num_threads(before_); }

private:
    int before_;
};

constexpr ConvPass kPasses[] = {ConvPass::forward, ConvPass::backward_data,
                                ConvPass::backward_weights};

// Several blocks of both channels, taps that reach over every rim, a ragged last block.
ConvShape several_blocks() {
    return validated({.N = 3,
                      .C = 100,
                      .H = 9,
                      .W = 10,
                      .K = 130,
                      .R = 3,
                      .S = 3,
                      .pad_top = 1,
                      .pad_bottom = 1,
                      .pad_left = 1,
                      .pad_right = 1});
}

// An image of three channels under a large filter, as networks begin with.
ConvShape first_layer() {
    return validated({.N = 2,
                      .C = 3,
                      .H = 17,
                      .W = 19,
                      .K = 40,
                      .R = 7,
                      .S = 7,
                      .stride_h = 2,
                      .stride_w = 2,
                      .pad_top = 3,
                      .pad_bottom = 3,
                      .pad_left = 3,
                      .pad_right = 3});
}

ConvShape pointwise() {
    return validated({.N = 4, .C = 70, .H = 8, .W = 6, .K = 33, .R = 1, .S = 1});
}

TEST_CASE("random shapes: all passes agree with sums in double, and touch nothing else") {
    std::mt19937 random(1);
    for (unsigned i = 0; i < 50; ++i) {
        const Threads threads(1 + static_cast<int>(i) % 3);
        const ConvShape shape = validated(testing::drawn_conv_shape(random));
        const ConvOperands operands = testing::conv_operands(shape, Values::eighths, i);
        const ConvOracle oracle(shape, operands);
        for_specs(shape, [&](ConvSpec spec) {
            spec.bias = i % 2 == 0;
            if (i % 3 == 0) spec.activation = Activation::relu;
            const ConvFused fused{.residual = i % 4 < 2,
                                  .mask = i % 6 == 0 && can_have_mask(shape)};
            const Fence fence = i % 2 == 0 ? Fence::after : Fence::before;
            std::string fault;
            check_equal(testing::computed(Conv2d(spec), operands, fused, fence, fault),
                        oracle.results(spec, fused));
            CHECK(fault == "");
        });
    }
}

TEST_CASE("every schedule that the model ranks gives the same sums") {
    for (const ConvShape& shape : {several_blocks(), first_layer(), pointwise()}) {
        const ConvOperands operands = testing::conv_operands(shape, Values::eighths, 7);
        const ConvOracle oracle(shape, operands);
        for_specs(shape, [&](const ConvSpec& spec) {
            Conv2d conv(spec);
            for (std::size_t rank = 0; rank < 40; rank += 19) {
                for (const ConvPass pass : kPasses) {
                    const std::vector<Schedule> ranked = conv.candidates(pass, 40);
                    const Schedule& schedule = ranked[std::min(rank, ranked.size() - 1)];
                    conv.set_schedule(pass, schedule);
                    CHECK(conv.schedule(pass) == schedule);
                }
                std::string fault;
                check_equal(testing::computed(conv, operands, {}, Fence::after, fault),
                            oracle.results(spec, {}));
                CHECK(fault == "");
            }
        });
    }
}

TEST_CASE("the bits do not depend on the number of threads") {
    for (const ConvShape& shape : {several_blocks(), first_layer(), pointwise()}) {
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
                    for (int repeat = 0; repeat < 3; ++repeat) {
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

TEST_CASE("scratch is at most the weights and an image per thread") {
    constexpr std::int64_t kSmall = 16384;
    std::mt19937 random(3);
    for (unsigned i = 0; i < 100; ++i) {
        const ConvShape shape = validated(testing::drawn_conv_shape(random));
        for_specs(shape, [&](const ConvSpec& spec) {
            const ChannelBlocks in = src_blocks(shape);
            const ChannelBlocks out = dst_blocks(shape);
            const std::int64_t image =
                size_of(spec.dtype) * (in.count() * in.block * shape.H * shape.W +
                                       out.count() * out.block * shape.P() * shape.Q());
            const Conv2d conv(spec);
            for (const int count : {1, 2, 5}) {
                const Threads threads(count);
                for (const ConvPass pass : kPasses) {
                    CAPTURE(name_of(pass));
                    CAPTURE(count);
                    CHECK(conv.scratch_bytes(pass) <=
                          4 * packed_weights_size(shape, DType::f32) + count * image + kSmall);
                }
            }
        });
    }
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
    for (std::size_t i = 0; i < operands.diff_dst.size(); i += 90) operands.diff_dst[i] = kInfinity;
    const ConvOracle oracle(shape, operands);
    for_specs(shape, [&](const ConvSpec& spec) {
        std::string fault;
        check_equal(testing::computed(Conv2d(spec), operands, {}, Fence::after, fault),
                    oracle.results(spec, {}));
    });
}

TEST_CASE("a depthwise convolution has no schedules") {
    Conv2d conv({.shape = {.N = 1, .C = 8, .H = 5, .W = 5, .K = 8, .R = 3, .S = 3, .groups = 8}});
    const char* const sentence =
        "a depthwise convolution (groups equal to the channels) runs a fixed nest, expected no "
        "schedule for it";
    for (const ConvPass pass : kPasses) {
        CHECK_THROWS_WITH_AS(conv.schedule(pass), sentence, std::invalid_argument);
        CHECK_THROWS_WITH_AS(conv.set_schedule(pass, {}), sentence, std::invalid_argument);
        CHECK_THROWS_WITH_AS(conv.loops(pass), sentence, std::invalid_argument);
        CHECK_THROWS_WITH_AS(conv.candidates(pass, 1), sentence, std::invalid_argument);
    }
}

TEST_CASE("a schedule that is refused changes nothing") {
    for_specs(several_blocks(), [&](const ConvSpec& spec) {
        Conv2d conv(spec);
        for (const ConvPass pass : kPasses) {
            const Schedule before = conv.schedule(pass);
            CHECK_THROWS_AS(conv.set_schedule(pass, parse_schedule("n k")), std::invalid_argument);
            CHECK(conv.schedule(pass) == before);
            CHECK(conv.candidates(pass, 1).front() == before);
        }
    });
}

}  // namespace
}  // namespace dlprim
