#include <algorithm>
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
    const auto least = std::max<std::int64_t>(largest_live_set(buffers), 1);
    return std::max(1.0, static_cast<double>(plan.bytes) / static_cast<double>(least));
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

namespace {

// Of all sets of buffers.
std::int64_t largest_by_trial(const std::vector<Lifetime>& buffers) {
    std::int64_t most = 0;
    for (std::uint32_t set = 0; set < (1u << buffers.size()); ++set) {
        std::int64_t bytes = 0;
        bool at_once = true;
        for (std::size_t i = 0; i < buffers.size() && at_once; ++i) {
            if ((set >> i & 1) == 0 || !buffers[i].is_needed()) continue;
            bytes += aligned(buffers[i].bytes);
            for (std::size_t j = 0; j < i; ++j) {
                const bool both = (set >> j & 1) != 0 && buffers[j].is_needed();
                at_once = at_once && (!both || buffers[i].overlaps(buffers[j]));
            }
        }
        if (at_once) most = std::max(most, bytes);
    }
    return most;
}

// Three stretches of branches of two to three steps, with a step in front of each.
BranchOf branch_at(std::int64_t step) {
    const std::int64_t stretch = step / 8 * 8, place = step - stretch;
    if (place == 0) return {};
    return {.number = stretch + (place < 3   ? 1
                                 : place < 6 ? 3
                                             : 6),
            .stretch = {stretch + 1, stretch + 8}};
}

}  // namespace

TEST_CASE("what branches need is needed at one time, and not what one needs in turn") {
    const BranchOf one{.number = 1, .stretch = {1, 5}}, other{.number = 3, .stretch = {1, 5}};
    Lifetime early{.bytes = 64}, late{.bytes = 64}, beside{.bytes = 64}, read{.bytes = 64};
    early.use(1, one);
    late.use(2, one);
    beside.use(4, other);
    CHECK(early.precedes(late));
    CHECK(early.overlaps(beside));
    CHECK(late.overlaps(beside));
    read.use(0, {});
    read.use(1, one);
    CHECK(read.precedes(late));
    CHECK(read.overlaps(beside));
    CHECK(largest_live_set({early, late, beside, read}) == 3 * 64);
    read.use(3, other);  // now it is needed by all to the end
    CHECK(read.overlaps(late));
    CHECK(read.end() == 5);
    Lifetime behind{.bytes = 64};
    behind.use(5, {});
    for (const Lifetime& it : {early, late, beside, read}) CHECK(it.precedes(behind));
    CHECK(largest_live_set({early, late, beside, read}) == 3 * 64);
    CHECK_THROWS_AS(require_valid({.offsets = {0, 0}, .bytes = 64}, {early, beside}),
                    std::logic_error);
    CHECK_NOTHROW(require_valid({.offsets = {0, 0}, .bytes = 64}, {early, late}));
}

TEST_CASE("drawn lifetimes in branches have the largest set that trial finds, and valid plans") {
    std::mt19937 random(11);
    const auto draw = [&](std::int64_t least, std::int64_t most) {
        return std::uniform_int_distribution<std::int64_t>(least, most)(random);
    };
    double all = 0;
    for (int trial = 0; trial < 300; ++trial) {
        std::vector<Lifetime> buffers(static_cast<std::size_t>(draw(1, 11)));
        for (Lifetime& it : buffers) {
            it.bytes = draw(0, 3) == 0 ? draw(0, 100) : draw(0, 100000);
            std::int64_t step = draw(0, 20);
            for (std::int64_t uses = draw(1, 3); uses > 0 && step < 24; --uses) {
                it.use(step, branch_at(step));
                step += draw(0, 5);
            }
        }
        CAPTURE(trial);
        CHECK(largest_live_set(buffers) == largest_by_trial(buffers));
        all += waste(buffers);
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
