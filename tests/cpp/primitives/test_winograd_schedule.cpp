#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

#include "primitives/winograd/winograd_pass.h"
#include "primitives/winograd/winograd_schedule.h"
#include "primitives/winograd/winograd_weights_pass.h"

namespace dlprim {
namespace {

constexpr int kAll = 1000;
constexpr int kTiles[] = {4, 2};

ConvShape shape_of(std::int64_t images, std::int64_t channels, std::int64_t results,
                   std::int64_t size) {
    return {.N = images,
            .C = channels,
            .H = size,
            .W = size,
            .K = results,
            .R = 3,
            .S = 3,
            .pad_top = 1,
            .pad_bottom = 1,
            .pad_left = 1,
            .pad_right = 1};
}

std::vector<ConvProblem> problems() {
    std::vector<ConvShape> shapes = {shape_of(8, 64, 64, 28), shape_of(2, 130, 17, 7),
                                     shape_of(1, 16, 16, 90), shape_of(3, 1, 1, 1),
                                     shape_of(40, 32, 96, 5)};
    shapes.push_back(shape_of(2, 24, 40, 9));
    shapes.back().groups = 2;
    shapes.push_back(shape_of(1, 20, 20, 13));
    shapes.back().W = 2000;
    std::vector<ConvProblem> all;
    for (const ConvShape& shape : shapes) all.push_back({validated(shape)});
    all.push_back({validated(shape_of(8, 64, 64, 28)), DType::bf16, Format::nhwc});
    return all;
}

bool is_bounded(const Schedule& schedule) {
    std::int64_t tiles = 1;
    bool part_of_row = true;
    for (const Level& level : schedule.levels) {
        // Parts of the minibatch are not blocks of tiles.
        const bool is_part = &level == &schedule.levels.front() && schedule.levels.size() == 4;
        const bool counts =
            !is_part && (level.letter == 'n' || level.letter == 'h' || level.letter == 'w');
        if (counts) tiles *= level.step;
        if (counts && level.letter != 'w') part_of_row = part_of_row && level.step == 1;
    }
    return tiles <= 512 || part_of_row;
}

void check_order(const std::vector<WinogradPlan>& plans) {
    REQUIRE(!plans.empty());
    for (std::size_t i = 0; i < plans.size(); ++i) {
        CHECK(std::isfinite(plans[i].cycles));
        CHECK(plans[i].cycles >= 0);
        if (i > 0) CHECK(plans[i].shared_cycles >= plans[i - 1].shared_cycles);
        CHECK(parse_schedule(to_string(plans[i].schedule)) == plans[i].schedule);
        CHECK(is_bounded(plans[i].schedule));
    }
}

double forward_cycles(const ConvShape& shape, int tile) {
    return winograd_plans(winograd_problem({shape}, PassKind::forward, tile), Machine{}, 1)
        .front()
        .cycles;
}

double weights_cycles(const ConvShape& shape, int tile) {
    return winograd_plans(winograd_problem({shape}, PassKind::backward_weights, tile), Machine{}, 1)
        .front()
        .cycles;
}

TEST_CASE("plans are in order, bounded, and make passes") {
    for (const ConvProblem& problem : problems()) {
        for (const int tile : kTiles) {
            CAPTURE(problem.shape.H);
            CAPTURE(problem.shape.C);
            CAPTURE(tile);
            for (const WinogradProblem& pass :
                 {winograd_problem(problem, PassKind::forward, tile),
                  winograd_problem(problem, PassKind::backward_data, tile)}) {
                const auto plans = winograd_plans(pass, Machine{}, kAll);
                check_order(plans);
                for (const WinogradPlan& plan : plans) {
                    CHECK_NOTHROW(WinogradPass(pass, plan.schedule));
                }
            }
            const WinogradProblem weights =
                winograd_problem(problem, PassKind::backward_weights, tile);
            const auto plans = winograd_plans(weights, Machine{}, kAll);
            check_order(plans);
            for (const WinogradPlan& plan : plans) {
                CHECK_NOTHROW(WinogradWeightsPass(weights, plan.schedule));
            }
        }
    }
}

TEST_CASE("no more plans than asked for, the best first") {
    const ConvProblem problem{shape_of(8, 64, 64, 28)};
    const WinogradProblem forward = winograd_problem(problem, PassKind::forward, 4);
    const auto all = winograd_plans(forward, Machine{}, kAll);
    REQUIRE(all.size() > 3);
    for (const int count : {-1, 0, 1, 3}) {
        const auto some = winograd_plans(forward, Machine{}, count);
        CHECK(some.size() == static_cast<std::size_t>(count < 1 ? 1 : count));
        CHECK(some.front().schedule == all.front().schedule);
    }
}

TEST_CASE("twice the work costs more by every estimate") {
    const ConvShape shapes[] = {shape_of(2, 64, 64, 28), shape_of(1, 128, 32, 14),
                                shape_of(4, 16, 16, 56)};
    for (const ConvShape& small : shapes) {
        for (std::int64_t ConvShape::* const extent :
             {&ConvShape::N, &ConvShape::C, &ConvShape::K, &ConvShape::H, &ConvShape::W}) {
            ConvShape large = small;
            large.*extent *= 2;
            CHECK(direct_cycles({large}, {}) > direct_cycles({small}, {}));
            for (const int tile : kTiles) {
                CHECK(forward_cycles(large, tile) > forward_cycles(small, tile));
                CHECK(weights_cycles(large, tile) > weights_cycles(small, tile));
            }
        }
    }
}

TEST_CASE("Winograd is estimated faster for many channels and slower for few") {
    const ConvShape many = shape_of(8, 256, 256, 28);
    const ConvShape few = shape_of(8, 3, 8, 28);
    CHECK(forward_cycles(many, 4) < forward_cycles(many, 2));
    CHECK(forward_cycles(many, 4) < direct_cycles({many}, {}) / 2);
    CHECK(forward_cycles(few, 4) > direct_cycles({few}, {}));
}

TEST_CASE("pairs of bfloat16 are multiplied in half the time") {
    const ConvProblem halves{shape_of(8, 64, 64, 28), DType::bf16};
    CHECK(direct_cycles(halves, {.halves_rate = 2}) == direct_cycles(halves, {}) / 2);
    const ConvProblem floats{halves.shape};
    CHECK(direct_cycles(floats, {.halves_rate = 2}) == direct_cycles(floats, {}));
}

TEST_CASE("without images there is a plan that makes a pass") {
    const ConvProblem problem{shape_of(0, 64, 64, 28)};
    CHECK(direct_cycles(problem, {}) == 0);
    for (const int tile : kTiles) {
        const WinogradProblem forward = winograd_problem(problem, PassKind::forward, tile);
        const auto plans = winograd_plans(forward, Machine{}, kAll);
        check_order(plans);
        for (const WinogradPlan& plan : plans) {
            const WinogradPass pass(forward, plan.schedule);
            CHECK(pass.transformed_floats() > 0);
        }
        const WinogradProblem gradient =
            winograd_problem(problem, PassKind::backward_weights, tile);
        const auto weights = winograd_plans(gradient, Machine{}, kAll);
        check_order(weights);
        const WinogradWeightsPass pass(gradient, weights.front().schedule);
        CHECK(pass.scratch_bytes(DType::f32, 1) >= 0);
    }
}

}  // namespace
}  // namespace dlprim
