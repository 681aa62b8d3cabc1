#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "graph/copy_step.h"
#include "graph/elements/gather_step.h"
#include "graph/network.h"

using namespace dlprim;

namespace {

NetworkTensor floats(std::vector<std::int64_t> shape) {
    return dense_tensor("float32", 4, std::move(shape));
}

// dst = src + by, all of them of `count` floats.
NetworkStep add_number(int src, int dst, std::int64_t count, float by) {
    return {.kind = "add",
            .label = std::to_string(src),
            .reads = {src},
            .writes = {dst},
            .replaced = {src},
            .run = [=](const Addresses& at) {
                const float* const from = at[src];
                float* const to = at[dst];
                for (std::int64_t i = 0; i < count; ++i) to[i] = from[i] + by;
            }};
}

std::vector<float> run(const Network& network, const std::vector<float>& x, std::size_t count) {
    std::vector<float> result(count);
    network.run({{x.data()}, {result.data()}});
    return result;
}

}  // namespace

TEST_CASE("a chain of steps that replace what they read runs in memory for one value") {
    Network network;
    const int x = network.input(floats({16}));
    int value = x;
    for (int i = 0; i < 9; ++i) {
        const int next = network.temporary(floats({16}));
        network.add(add_number(value, next, 16, 1));
        value = next;
    }
    network.finish({value});
    CHECK(network.planned_bytes() == 64);
    CHECK(network.live_bytes() == 64);
    CHECK(run(network, std::vector<float>(16, 1), 16) == std::vector<float>(16, 10));
    CHECK(network.profile({{std::vector<float>(16).data()}, {std::vector<float>(16).data()}})
              .size() == 9);
}

TEST_CASE("a value may be replaced where it is read, and nowhere else") {
    Network network;
    const int x = network.input(floats({4}));
    const int value = network.temporary(floats({4}));
    network.add(add_number(x, value, 4, 1));
    network.add(add_number(value, value, 4, 1));
    NetworkStep step = add_number(value, value, 4, 1);
    step.reads.push_back(value);  // but it is replaced once
    CHECK_THROWS_AS(network.add(step), std::invalid_argument);
    step.replaced.clear();
    CHECK_THROWS_AS(network.add(step), std::invalid_argument);
    network.finish({value});
    CHECK(run(network, {1, 2, 3, 4}, 4) == std::vector<float>{3, 4, 5, 6});
}

TEST_CASE("what is read later, or in another way, is not replaced") {
    Network network;
    const int x = network.input(floats({16}));
    const int kept = network.temporary(floats({16}));
    const int next = network.temporary(floats({16}));
    const int last = network.temporary(floats({16}));
    network.add(add_number(x, kept, 16, 1));
    network.add(add_number(kept, next, 16, 1));
    NetworkStep sum = add_number(next, last, 16, 0);
    sum.reads = {next, kept, next};  // next is replaced once, but read twice
    sum.run = [=](const Addresses& at) {
        const float *const one = at[kept], *const other = at[next];
        float* const to = at[last];
        for (int i = 0; i < 16; ++i) to[i] = one[i] + 2 * other[15 - i];
    };
    network.add(sum);
    const int result = network.temporary(floats({16}));
    network.add(add_number(last, result, 16, 0));
    network.finish({result});
    CHECK(network.planned_bytes() == 3 * 64);
    CHECK(run(network, std::vector<float>(16, 1), 16) == std::vector<float>(16, 8));
}

TEST_CASE("views live as long as their roots are used") {
    Network network;
    const int x = network.input(floats({2}));
    const int whole = network.temporary(floats({4}));
    const int left = network.view(whole, floats({2}), 0);
    const int right = network.view(whole, floats({2}), 8);
    network.add(add_number(x, left, 2, 1));
    for (int i = 0; i < 3; ++i) {  // others do not take the place of the part written first
        const int other = network.temporary(floats({2}));
        network.add(add_number(x, other, 2, 50));
    }
    network.add(add_number(left, right, 2, 1));
    const int dst = network.temporary(floats({4}));
    network.add(add_number(whole, dst, 4, 10));
    network.finish({dst});
    CHECK(run(network, {1, 2}, 4) == std::vector<float>{12, 13, 13, 14});
}

TEST_CASE("parts of a tensor are apart where they are so along an axis") {
    const NetworkTensor whole = floats({4, 10});
    const auto part = [&](std::vector<std::int64_t> shape) {
        NetworkTensor made = floats(std::move(shape));
        made.strides = whole.strides;
        return made;
    };
    const NetworkTensor left = part({4, 6}), right = part({4, 4}), row = part({1, 10});
    CHECK_FALSE(may_overlap(whole, {left, 0}, {right, 24}));
    CHECK(may_overlap(whole, {left, 0}, {right, 20}));
    CHECK(may_overlap(whole, {left, 0}, {row, 80}));
    CHECK_FALSE(may_overlap(whole, {row, 40}, {row, 80}));
    // Behind the last column the next row begins.
    CHECK(may_overlap(whole, {part({3, 4}), 32}, {part({3, 1}), 40}));
    const NetworkTensor flat = floats({20});
    CHECK(may_overlap(whole, {flat, 0}, {right, 24}));
    CHECK_FALSE(may_overlap(whole, {flat, 0}, {flat, 80}));
    CHECK_FALSE(may_overlap(whole, {floats({0}), 0}, {whole, 0}));
}

TEST_CASE("errors of steps say whose they are, and the next run is right") {
    Network network;
    const int table = network.input(floats({3, 2}));
    const std::vector<std::int32_t> wrong{0, 3};
    const int places = network.constant(dense_tensor("int32", 4, {2}), wrong.data());
    const int dst = network.temporary(floats({2, 2}));
    network.add(gather_step(network, {.table = table, .indices = places, .dst = dst}, "embed"));
    network.finish({dst});
    const std::vector<float> x{1, 2, 3, 4, 5, 6};
    CHECK_THROWS_WITH_AS(run(network, x, 4), "in step embed (gather): index 3 is outside of 3 rows",
                         std::out_of_range);
    const_cast<std::int32_t&>(wrong[1]) = -1;
    CHECK(run(network, x, 4) == std::vector<float>{1, 2, 5, 6});
}

TEST_CASE("values that are no temporaries are copied to results") {
    Network network;
    const int x = network.input(floats({2, 2}));
    const std::vector<float> fixed{7};
    const int constant = network.constant(floats({1}), fixed.data());
    NetworkTensor turned = floats({2, 2});
    turned.strides = {4, 8};
    const int view = network.view(x, turned, 0);
    network.finish({x, view, constant, x});
    const std::vector<float> given{1, 2, 3, 4};
    std::vector<float> results(13);
    float* const to = results.data();
    network.run({{given.data()}, {to, to + 4, to + 8, to + 9}});
    CHECK(results == std::vector<float>{1, 2, 3, 4, 1, 3, 2, 4, 7, 1, 2, 3, 4});
}

TEST_CASE("a temporary of another shape lies in the array of the result") {
    Network network;
    const int x = network.input(floats({4}));
    const int made = network.temporary(floats({4}));
    network.add(add_number(x, made, 4, 1));
    network.finish({network.view(made, floats({2, 2}), 0), network.view(made, floats({3}), 4)});
    CHECK(network.planned_bytes() == 0);
    CHECK(network.steps() == 2);
    const std::vector<float> given{1, 2, 3, 4};
    std::vector<float> results(7);
    network.run({{given.data()}, {results.data(), results.data() + 4}});
    CHECK(results == std::vector<float>{2, 3, 4, 5, 3, 4, 5});
}

TEST_CASE("extents that memory cannot hold are refused") {
    const std::int64_t huge = std::int64_t{1} << 40;
    CHECK_THROWS_AS(floats({huge, huge}), std::invalid_argument);
    CHECK_THROWS_AS(floats({0, huge, huge}), std::invalid_argument);
    CHECK_THROWS_AS(floats({3, -1}), std::invalid_argument);
    CHECK(floats({0, 5}).bytes() == 0);
}

TEST_CASE("a network that is not finished does not run") {
    Network network;
    CHECK_THROWS_AS(network.run({{}, {}}), std::invalid_argument);
    network.finish({});
    CHECK_NOTHROW(network.run({{}, {}}));
    CHECK_THROWS_AS(network.finish({}), std::invalid_argument);
}
