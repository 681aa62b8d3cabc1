// The schedules and the scratch of a convolution.
#include <algorithm>
#include <cstdint>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "cases.h"
#include "contraction_problem.h"
#include "conv_problem.h"
#include "conv_shapes.h"
#include "primitives/conv/conv2d.h"
#include "primitives/conv/conv_weights.h"

namespace dlprim {
namespace {

using testing::ConvOperands;
using testing::ConvOracle;
using testing::Fence;
using testing::first_layer;
using testing::for_specs;
using testing::pointwise;
using testing::several_blocks;
using testing::Threads;
using testing::Values;

constexpr PassKind kPasses[] = {PassKind::forward, PassKind::backward_data,
                                PassKind::backward_weights};

TEST_CASE("every schedule that the model ranks gives the same sums") {
    const Threads threads(1);
    for (const ConvShape& shape : {several_blocks(), first_layer(), pointwise()}) {
        const ConvOperands operands = testing::conv_operands(shape, Values::eighths, 7);
        const ConvOracle oracle(shape, operands);
        for_specs(shape, [&](const ConvSpec& spec) {
            Conv2d conv(spec);
            for (std::size_t rank = 0; rank < testing::cases(40); rank += 8) {
                for (const PassKind pass : kPasses) {
                    const std::vector<Schedule> ranked = conv.candidates(pass, 40);
                    const Schedule& schedule = ranked[std::min(rank, ranked.size() - 1)];
                    conv.set_schedule(pass, schedule);
                    CHECK(conv.schedule(pass) == schedule);
                }
                std::string fault;
                CHECK((testing::computed(conv, operands, {}, Fence::after, fault) ==
                       oracle.results(spec, {})));
                CHECK(fault == "");
            }
        });
    }
}

Contraction contraction_of(const ConvProblem& problem, PassKind pass) {
    if (pass == PassKind::forward) return forward_contraction(problem, {});
    if (pass == PassKind::backward_weights) return weights_contraction(problem, {problem.shape.N});
    return prefers_windows(problem) ? window_data_contraction(problem)
                                    : backward_data_contraction(problem);
}

TEST_CASE("so does any schedule that fits") {
    testing::Draw draw(1);
    const Threads threads(3);
    for (const ConvShape& shape : {several_blocks(), first_layer(), pointwise()}) {
        const ConvOperands operands = testing::conv_operands(shape, Values::eighths, 12);
        const ConvOracle oracle(shape, operands);
        for_specs(shape, [&](const ConvSpec& spec) {
            Conv2d conv(spec);
            std::string schedules;
            for (unsigned repeat = 0; repeat < testing::cases(6); ++repeat) {
                for (const PassKind pass : kPasses) {
                    const Contraction contraction =
                        contraction_of({spec.shape, spec.dtype, spec.layout}, pass);
                    conv.set_schedule(pass, testing::drawn_schedule(draw, contraction));
                    schedules += " '" + to_string(conv.schedule(pass)) + "'";
                }
                CAPTURE(schedules);
                std::string fault;
                CHECK((testing::computed(conv, operands, {}, Fence::after, fault) ==
                       oracle.results(spec, {})));
                CHECK(fault == "");
            }
        });
    }
}

// Of src and dst, as they are.
std::int64_t image_bytes(const ConvSpec& spec) {
    const ConvShape& shape = spec.shape;
    const ChannelBlocks in = src_blocks(shape);
    const ChannelBlocks out = dst_blocks(shape);
    return size_of(spec.dtype) * (in.count() * in.block * shape.H * shape.W +
                                  out.count() * out.block * shape.P() * shape.Q());
}

TEST_CASE("scratch is at most the weights and an image for every thread") {
    constexpr std::int64_t kSmall = 16384;
    std::mt19937 random(3);
    for (unsigned i = 0; i < 100; ++i) {
        for_specs(validated(testing::drawn_conv_shape(random)), [&](const ConvSpec& spec) {
            const std::int64_t weights = 4 * packed_weights_size(spec.shape, DType::f32);
            const Conv2d conv(spec);
            for (const int count : {1, 2, 5}) {
                const Threads threads(count);
                for (const PassKind pass : kPasses) {
                    CAPTURE(name_of(pass));
                    CAPTURE(count);
                    CHECK(conv.scratch_bytes(pass) <= weights + count * image_bytes(spec) + kSmall);
                }
            }
        });
    }
}

TEST_CASE("a depthwise convolution has no schedules") {
    Conv2d conv({.shape = {.N = 1, .C = 8, .H = 5, .W = 5, .K = 8, .R = 3, .S = 3, .groups = 8}});
    const char* const sentence =
        "a depthwise convolution (groups equal to the channels) runs a fixed nest, expected no "
        "schedule for it";
    for (const PassKind pass : kPasses) {
        CHECK_THROWS_WITH_AS(conv.schedule(pass), sentence, std::invalid_argument);
        CHECK_THROWS_WITH_AS(conv.set_schedule(pass, {}), sentence, std::invalid_argument);
        CHECK_THROWS_WITH_AS(conv.loops(pass), sentence, std::invalid_argument);
        CHECK_THROWS_WITH_AS(conv.candidates(pass, 1), sentence, std::invalid_argument);
    }
}

TEST_CASE("a schedule that is refused changes nothing") {
    for_specs(several_blocks(), [&](const ConvSpec& spec) {
        Conv2d conv(spec);
        for (const PassKind pass : kPasses) {
            const Schedule before = conv.schedule(pass);
            CHECK_THROWS_AS(conv.set_schedule(pass, parse_schedule("n k")), std::invalid_argument);
            // A kernel call computes one image or sums several, but never several results.
            Schedule several = before;
            for (Level& level : several.levels) {
                if (level.letter == (pass == PassKind::backward_weights ? 'k' : 'n'))
                    level.step = 2;
            }
            CHECK_THROWS_AS(conv.set_schedule(pass, several), std::invalid_argument);
            CHECK(conv.schedule(pass) == before);
            CHECK(conv.candidates(pass, 1).front() == before);
        }
    });
}

}  // namespace
}  // namespace dlprim
