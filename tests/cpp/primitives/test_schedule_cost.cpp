#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "bound_product.h"
#include "primitives/conv/conv_weights.h"
#include "primitives/mapping/product_mapping.h"
#include "primitives/mapping/product_ways.h"
#include "primitives/nest/contraction_plan.h"
#include "primitives/nest/schedule_cost.h"
#include "primitives/tensor/parallel.h"

namespace dlprim {
namespace {

constexpr Machine kCaches{.l1 = 32e3, .l2 = 1e6, .l3 = 32e6};
constexpr Machine kWideCaches{.l1 = 49152, .l2 = 2097152, .l3 = 32e6};

ConvShape square(std::int64_t N, std::int64_t C, std::int64_t H, std::int64_t K, std::int64_t R,
                 std::int64_t stride) {
    const std::int64_t pad = R / 2;
    return validated({.N = N,
                      .C = C,
                      .H = H,
                      .W = H,
                      .K = K,
                      .R = R,
                      .S = R,
                      .stride_h = stride,
                      .stride_w = stride,
                      .pad_top = pad,
                      .pad_bottom = pad,
                      .pad_left = pad,
                      .pad_right = pad});
}

std::vector<ConvShape> shapes() {
    ConvShape grouped = square(2, 96, 14, 144, 3, 1);
    grouped.groups = 3;
    return {square(8, 64, 56, 64, 3, 1),  square(8, 256, 14, 1024, 1, 1),
            square(8, 512, 7, 512, 3, 1), square(4, 128, 28, 256, 1, 2),
            square(4, 3, 60, 64, 7, 2),   square(1, 1, 1, 1, 1, 1),
            square(0, 64, 14, 64, 3, 1),  grouped};
}

// Every pass of every shape in both types.
template <class Body>
void for_contractions(const Body& body) {
    for (const ConvShape& shape : shapes()) {
        for (const DType dtype : {DType::f32, DType::bf16}) {
            const ConvProblem problem{shape, dtype, Format::blocked};
            CAPTURE(shape.C);
            CAPTURE(shape.H);
            CAPTURE(name_of(dtype));
            body(forward_contraction(problem, {.bias = true}));
            body(backward_data_contraction(problem));
            body(weights_contraction(problem, {shape.N}));
            if (prefers_windows(problem)) body(window_data_contraction(problem));
        }
    }
}

double cost(const Contraction& contraction, const char* schedule) {
    return schedule_cost(contraction, parse_schedule(schedule), kCaches);
}

TEST_CASE("ranked schedules are different ones, the cheapest first") {
    for_contractions([](const Contraction& contraction) {
        const std::vector<Schedule> ranked = ranked_schedules(contraction, kCaches, 30);
        REQUIRE(!ranked.empty());
        CHECK(ranked.size() <= 30);
        std::set<std::string> texts;
        double before = 0;
        for (const Schedule& schedule : ranked) {
            const double now = schedule_cost(contraction, schedule, kCaches);
            CHECK(now >= before);
            before = now;
            texts.insert(to_string(schedule));
        }
        CHECK(texts.size() == ranked.size());
        CHECK(ranked_schedules(contraction, kCaches, 1) == std::vector{ranked.front()});
    });
}

TEST_CASE("ranked schedules are plans, and share no sum") {
    for_contractions([](const Contraction& contraction) {
        for (const Schedule& schedule : ranked_schedules(contraction, kCaches, 4)) {
            CAPTURE(to_string(schedule));
            CHECK_NOTHROW(ContractionPlan(contraction, schedule));
        }
    });
}

TEST_CASE("tasks are those of the nest") {
    for_contractions([](const Contraction& contraction) {
        std::vector<Loop> loops;
        for (const ContractionLoop& loop : contraction.loops) {
            loops.push_back({loop.letter, std::max<std::int64_t>(loop.extent, 1)});
        }
        for (const Schedule& schedule : ranked_schedules(contraction, kCaches, 40)) {
            CAPTURE(to_string(schedule));
            const double tasks = schedule_traffic(contraction, schedule, kCaches).tasks;
            CHECK(tasks == static_cast<double>(LoopNest(loops, schedule).tasks()));
        }
    });
}

TEST_CASE("a smaller cache brings in no less, and the largest one everything once") {
    for_contractions([](const Contraction& contraction) {
        // C is at least read and written.
        const double once = contraction.bytes_a + contraction.bytes_b + 2 * contraction.bytes_c;
        std::set<double> into_endless;
        for (const Schedule& schedule : ranked_schedules(contraction, kCaches, 40)) {
            CAPTURE(to_string(schedule));
            const ScheduleTraffic traffic = schedule_traffic(contraction, schedule, kCaches);
            CHECK(traffic.flops == contraction.flops);
            CHECK(traffic.calls >= 1);
            CHECK(traffic.into_l1.total() >= traffic.into_l2.total() * (1 - 1e-9));
            CHECK(traffic.into_l2.total() >= traffic.into_l3.total() * (1 - 1e-9));
            CHECK(traffic.into_l3.total() >= once * (1 - 1e-9));
            const Machine endless{.l1 = 1e15, .l2 = 1e15, .l3 = 1e15};
            into_endless.insert(schedule_traffic(contraction, schedule, endless).into_l1.total());
        }
        CHECK(into_endless.size() == 1);
        CHECK(*into_endless.begin() >= once);
    });
}

TEST_CASE("streaming all weights for every row costs more than keeping a block of them") {
    const ConvProblem problem{square(16, 256, 14, 256, 3, 1), DType::f32, Format::blocked};
    const Contraction contraction = forward_contraction(problem, {});
    CHECK(cost(contraction, "K N P c8 G") < cost(contraction, "N P K c8 G"));
    const auto into_l2 = [&](const char* schedule) {
        return schedule_traffic(contraction, parse_schedule(schedule), kCaches).into_l2.total();
    };
    CHECK(into_l2("K N P c8 G") < 0.5 * into_l2("N P K c8 G"));
}

TEST_CASE("calls, and tasks that are too few to share, have a price") {
    const ConvProblem problem{square(16, 256, 14, 256, 1, 1), DType::f32, Format::blocked};
    const Contraction contraction = forward_contraction(problem, {});
    CHECK(cost(contraction, "N K P q196 c4 G") < cost(contraction, "N K P q196 c1 G"));
    CHECK(cost(contraction, "N K P q196 c4 G") < cost(contraction, "n k p q196 c4 g"));
    CHECK(cost(contraction, "N K P q196 c4 G") < cost(contraction, "n K p q196 c4 g"));
    CHECK(cost(contraction, "N K P q98 c4 G") < cost(contraction, "N K P q1 c4 G"));
}

TEST_CASE("ranks do not depend on the number of threads") {
    const int before = num_threads();
    const ConvProblem problem{square(8, 64, 28, 128, 3, 1), DType::f32, Format::blocked};
    const Contraction contraction = forward_contraction(problem, {});
    set_num_threads(1);
    const std::vector<Schedule> serial = ranked_schedules(contraction, kCaches, 50);
    set_num_threads(7);
    CHECK(ranked_schedules(contraction, kCaches, 50) == serial);
    set_num_threads(before);
}

TEST_CASE("with few registers gradients of weights sum rows that the L1 cache keeps") {
    constexpr Machine zen3{.l1 = 32768, .l2 = 524288, .l3 = 32e6, .vector_registers = 16};
    constexpr std::int64_t row_bytes = 64 * 4;
    for (const ConvShape& shape : {square(8, 64, 56, 64, 3, 1), square(8, 128, 28, 128, 3, 1),
                                   square(8, 256, 14, 256, 3, 1), square(8, 512, 7, 512, 3, 1)}) {
        const ConvProblem problem{shape, DType::f32, Format::blocked};
        const Contraction contraction = weights_contraction(problem, {shape.N});
        const Schedule schedule = ranked_schedules(contraction, zen3, 1).front();
        CAPTURE(to_string(schedule));
        const double depth = schedule_traffic(contraction, schedule, zen3).depth;
        CHECK(depth > 0);
        CHECK(depth <= zen3.rows_kept(row_bytes));
    }
}

// Its rows through A as it lies, transposed.
Contraction gradient_of_weights(std::int64_t rows, std::int64_t sums, std::int64_t columns) {
    const StridedProduct product = testing::product_of(
        "w(o,i) +=! d(n,o) * x(n,i)", {{sums, rows}, {sums, columns}}, {}, DType::f32);
    for (const ProductWay& way : product_ways(product, kWideCaches)) {
        if (way.exchanges || way.packs_a || !way.packs_b || way.packs_c) continue;
        return mapping_of(product, way, kWideCaches).contraction;
    }
    FAIL("no way leaves A in place");
    return {};
}

TEST_CASE("rows of a transposed factor that are far apart are not read in narrow pieces") {
    const Contraction far = gradient_of_weights(1024, 2048, 256);
    const auto costs = [&](const char* schedule) {
        return schedule_cost(far, parse_schedule(schedule), kWideCaches);
    };
    CHECK(costs("c A56 B") < 0.7 * costs("B2 A28 B c8"));
    CHECK(costs("c A56 B") < costs("c A192 B"));
    const Schedule best = ranked_schedules(far, kWideCaches, 1).front();
    CHECK(schedule_traffic(far, best, kWideCaches).pieces_into_l2 <= 2 * 4 * 2048);
    const Contraction near = gradient_of_weights(256, 2048, 256);
    const ScheduleTraffic traffic =
        schedule_traffic(near, parse_schedule("B2 A28 B c8"), kWideCaches);
    CHECK(traffic.pieces_into_l1 == 0);
    CHECK(traffic.pieces_into_l2 == 0);
}

TEST_CASE("the caches of this machine are some") {
    const Machine caches = this_machine();
    CHECK(caches.l1 >= 8e3);
    CHECK(caches.l2 >= caches.l1);
    CHECK(caches.l3 >= caches.l1);
}

}  // namespace
}  // namespace dlprim
