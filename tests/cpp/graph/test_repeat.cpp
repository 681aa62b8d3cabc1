// A network that runs once for each step of time, against the same steps in a loop; tables of
// bytes.
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "graph/elements/gather_step.h"
#include "graph/network.h"
#include "graph/repeat_step.h"

using namespace dlprim;

namespace {

NetworkTensor floats(std::int64_t parts, std::int64_t size) {
    return dense_tensor("float32", 4, {parts, size});
}

// Of two elements each: the state is halved and the input added; a result besides is twice that.
NetworkStep halved(int x, int state, int next, int twice) {
    return {.kind = "halved",
            .label = "halved",
            .reads = {x, state},
            .writes = {next, twice},
            .run = [=](const Addresses& at) {
                const float *const given = at[x], *const before = at[state];
                float *const made = at[next], *const more = at[twice];
                for (int i = 0; i < 2; ++i) {
                    made[i] = before[i] / 2 + given[i];
                    more[i] = 2 * made[i];
                }
            }};
}

struct Body {
    Network network;
    Body() {
        const int x = network.input(floats(1, 2)), state = network.input(floats(1, 2));
        const int next = network.temporary(floats(1, 2)), twice = network.temporary(floats(1, 2));
        network.add(halved(x, state, next, twice));
        network.finish({next, twice});
    }
};

// The states of all steps lie in the last two places; the doubles of all of them are a result.
std::vector<float> doubles(const std::vector<float>& x, bool reverse) {
    const auto steps = static_cast<std::int64_t>(x.size() / 2);
    const Body body;
    Network network;
    const int given = network.input(floats(steps, 2)), first = network.input(floats(1, 2));
    const int states = network.temporary(floats(2, 2)), all = network.temporary(floats(steps, 2));
    network.add(repeat_step(network,
                            {.body = body.network,
                             .inputs = {given},
                             .states = {first},
                             .results = {states, all},
                             .carried = {0},
                             .reverse = reverse},
                            "halves"));
    network.finish({all});
    const std::vector<float> start = {8, -8};
    std::vector<float> result(x.size());
    network.run({.inputs = {x.data(), start.data()}, .results = {result.data()}});
    return result;
}

}  // namespace

TEST_CASE("steps of time begin with what the last one left") {
    for (const std::int64_t steps : {1, 2, 3, 8, 33}) {
        for (const bool reverse : {false, true}) {
            std::vector<float> x;
            for (std::int64_t i = 0; i < 2 * steps; ++i) x.push_back(static_cast<float>(i % 7));
            const std::vector<float> result = doubles(x, reverse);
            std::vector<float> state = {8, -8};
            for (std::int64_t step = 0; step < steps; ++step) {
                const std::int64_t time = reverse ? steps - 1 - step : step;
                for (std::size_t i = 0; i < 2; ++i) {
                    const std::size_t at = 2 * static_cast<std::size_t>(time) + i;
                    state[i] = state[i] / 2 + x[at];
                    CHECK(result[at] == 2 * state[i]);
                }
            }
        }
    }
}

TEST_CASE("steps of time are as many parts of every array") {
    const Body body;
    Network network;
    const int given = network.input(floats(4, 2)), first = network.input(floats(1, 2));
    const int states = network.temporary(floats(4, 2)), one = network.temporary(floats(1, 2));
    const auto add = [&](std::vector<int> results, std::vector<int> carried) {
        network.add(repeat_step(network,
                                {.body = body.network,
                                 .inputs = {given},
                                 .states = {first},
                                 .results = std::move(results),
                                 .carried = std::move(carried)},
                                "halves"));
    };
    CHECK_THROWS_AS(add({states, one}, {0}), std::invalid_argument);
    CHECK_THROWS_AS(add({states}, {0}), std::invalid_argument);
    CHECK_THROWS_AS(add({states, states}, {2}), std::invalid_argument);
    CHECK_THROWS_AS(add({states, states}, {}), std::invalid_argument);
    const int more = network.temporary(floats(5, 2));  // of which the last would not be written
    CHECK_THROWS_AS(add({states, more}, {0}), std::invalid_argument);
    const int all = network.temporary(floats(4, 2));
    CHECK_NOTHROW(add({states, all}, {0}));
}

TEST_CASE("bytes are looked up in a table of 256") {
    std::vector<std::uint8_t> table(256), given;
    for (std::size_t i = 0; i < 256; ++i) table[i] = static_cast<std::uint8_t>(255 - i * i);
    for (const std::size_t count : {1U, 7U, 8U, 300U, 70001U}) {
        given.resize(count);
        for (std::size_t i = 0; i < count; ++i) given[i] = static_cast<std::uint8_t>(31 * i);
        Network network;
        const NetworkTensor bytes = dense_tensor("uint8", 1, {static_cast<std::int64_t>(count)});
        const int places = network.input(bytes);
        const int known = network.constant(dense_tensor("uint8", 1, {256}), table.data());
        const int dst = network.temporary(bytes);
        network.add(gather_step(network, {.table = known, .indices = places, .dst = dst}, "bytes"));
        network.finish({dst});
        std::vector<std::uint8_t> result(count);
        network.run({.inputs = {given.data()}, .results = {result.data()}});
        for (std::size_t i = 0; i < count; ++i) REQUIRE(result[i] == table[given[i]]);
    }
}

TEST_CASE("tables of bytes have elements of a word's size") {
    for (std::int64_t element = 1; element <= 9; ++element) {
        Network network;
        const int places = network.input(dense_tensor("uint8", 1, {4}));
        const int table = network.input(dense_tensor("void", element, {256}));
        const int dst = network.temporary(dense_tensor("void", element, {4}));
        const auto add = [&] {
            network.add(gather_step(network, {.table = table, .indices = places, .dst = dst}, ""));
        };
        const bool is_word = element == 1 || element == 2 || element == 4 || element == 8;
        CAPTURE(element);
        if (is_word) {
            CHECK_NOTHROW(add());
        } else {
            CHECK_THROWS_AS(add(), std::invalid_argument);
        }
    }
}
