#include <cstdint>
#include <random>
#include <stdexcept>
#include <vector>

#include <doctest/doctest.h>

#include "graph/buffer_plan.h"

using namespace dlprim;

namespace {

// Sizes in floats of the results of a network's layers, each read by the next one.
std::vector<Lifetime> chain(const std::vector<std::int64_t>& floats) {
    std::vector<Lifetime> made;
    for (std::size_t i = 0; i < floats.size(); ++i) {
        const auto step = static_cast<std::int64_t>(i);
        made.push_back({step, step + 1, floats[i] * 4});
    }
    return made;
}

// Bottlenecks of three convolutions whose input is kept for the sum at their end.
std::vector<Lifetime> resnet() {
    std::vector<Lifetime> made{{0, 1, 64 * 112 * 112 * 4}, {1, 5, 64 * 56 * 56 * 4}};
    std::int64_t step = 2, side = 56, channels = 64;
    for (const int blocks : {3, 4, 6, 3}) {
        for (int block = 0; block < blocks; ++block) {
            const std::int64_t narrow = channels * side * side * 4;
            made.push_back({step, step + 1, narrow});
            made.push_back({step + 1, step + 2, narrow});
            // The sum is in place; a first block's shortcut has a convolution of its own.
            made.push_back({step + 2, step + 6 + (block + 1 == blocks ? 1 : 0), 4 * narrow});
            step += block == 0 ? 4 : 3;
        }
        channels *= 2;
        side /= 2;
    }
    return made;
}

std::vector<Lifetime> bert(std::int64_t layers, std::int64_t tokens) {
    std::vector<Lifetime> made;
    const std::int64_t hidden = tokens * 768 * 4;
    for (std::int64_t layer = 0; layer < layers; ++layer) {
        const std::int64_t step = layer * 8;
        made.push_back({step - 1, step + 5, hidden});  // kept for the sum
        for (int i = 0; i < 3; ++i) made.push_back({step + i, step + 4, hidden});  // q, k, v
        made.push_back({step + 3, step + 4, 12 * tokens * tokens * 4});            // scores
        made.push_back({step + 4, step + 5, hidden});
        made.push_back({step + 5, step + 7, hidden});
        made.push_back({step + 6, step + 7, 4 * hidden});
    }
    return made;
}

double waste(const std::vector<Lifetime>& buffers) {
    const BufferPlan plan = plan_buffers(buffers);
    require_valid(plan, buffers);
    CHECK(plan.bytes >= largest_live_set(buffers));
    return static_cast<double>(plan.bytes) / static_cast<double>(largest_live_set(buffers));
}

}  // namespace

TEST_CASE("nothing needs no memory") {
    CHECK(plan_buffers({}).bytes == 0);
    const std::vector<Lifetime> unused{{0, 3, 0}, {}, {2, 1, 100}};
    CHECK(plan_buffers(unused).bytes == 0);
    CHECK_NOTHROW(require_valid(plan_buffers(unused), unused));
}

TEST_CASE("a chain takes two buffers, on cache lines") {
    const std::vector<Lifetime> buffers = chain({100, 100, 100, 100, 100});
    const BufferPlan plan = plan_buffers(buffers);
    CHECK(plan.bytes == 2 * 448);
    CHECK(plan.offsets[0] == plan.offsets[2]);
    CHECK(plan.offsets[1] == plan.offsets[3]);
    for (const std::int64_t offset : plan.offsets) CHECK(offset % 64 == 0);
}

TEST_CASE("what is needed throughout is shared with nothing") {
    const std::vector<Lifetime> buffers{{0, 9, 64}, {1, 2, 64}, {3, 4, 128}, {5, 9, 64}};
    const BufferPlan plan = plan_buffers(buffers);
    require_valid(plan, buffers);
    CHECK(plan.bytes == 192);
}

TEST_CASE("plans of networks are near the least") {
    CHECK(waste(resnet()) <= 1.1);
    for (const std::int64_t tokens : {16, 128, 512}) CHECK(waste(bert(12, tokens)) <= 1.1);
    CHECK(waste(chain({64 * 112 * 112, 64 * 56 * 56, 128 * 28 * 28, 1000})) == 1);
}

TEST_CASE("drawn plans are valid, and no buffers share memory at a time") {
    std::mt19937 random(7);
    const auto draw = [&](std::int64_t least, std::int64_t most) {
        return std::uniform_int_distribution<std::int64_t>(least, most)(random);
    };
    double all = 0;
    for (int trial = 0; trial < 300; ++trial) {
        std::vector<Lifetime> buffers(static_cast<std::size_t>(draw(1, 120)));
        const std::int64_t longest = draw(0, 10);
        for (Lifetime& it : buffers) {
            const std::int64_t first = draw(0, 100);
            it = {first, first + draw(0, longest),
                  draw(0, 3) == 0 ? draw(0, 100) : draw(0, 100000)};
        }
        CAPTURE(trial);
        const double here = waste(buffers);
        CHECK(here <= 1.6);
        all += here;
    }
    CHECK(all / 300 <= 1.1);
}

TEST_CASE("a wrong plan is found") {
    const std::vector<Lifetime> buffers{{0, 2, 100}, {2, 3, 100}, {3, 4, 100}};
    BufferPlan plan{.offsets = {0, 128, 0}, .bytes = 256};
    CHECK_NOTHROW(require_valid(plan, buffers));
    plan.offsets[1] = 64;
    CHECK_THROWS_AS(require_valid(plan, buffers), std::logic_error);
    plan.offsets[1] = 192;
    CHECK_THROWS_AS(require_valid(plan, buffers), std::logic_error);
    plan.offsets[1] = 130;
    CHECK_THROWS_AS(require_valid(plan, buffers), std::logic_error);
    CHECK_THROWS_AS(require_valid({.offsets = {0}, .bytes = 100}, buffers), std::logic_error);
}
