// States: memory of the caller that a network changes, with an old and a new value in one place.
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "graph/copy_step.h"
#include "graph/network.h"
#include "graph/piece_step.h"
#include "graph/update_step.h"

namespace dlprim {
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

TEST_CASE("a state changes where it lies, and who reads it before sees what it was") {
    Network network;
    const int state = network.state(floats({4}));
    const int next = network.next_of(state);
    const int old = network.temporary(floats({4}));
    network.add(copy_step(network, state, old, "old"));
    network.add(add_number(state, next, 4, 1));
    network.finish({old, next});
    CHECK(network.has_states());
    CHECK(network.changes(state));
    std::vector<float> held{1, 2, 3, 4};
    std::vector<float> before(4), behind(4);
    for (int run = 0; run < 2; ++run) {
        network.run({{held.data()}, {before.data(), behind.data()}});
        const auto first = static_cast<float>(run);
        CHECK(before == std::vector<float>{first + 1, first + 2, first + 3, first + 4});
        CHECK(behind == std::vector<float>{first + 2, first + 3, first + 4, first + 5});
        CHECK(held == behind);
    }
}

TEST_CASE("what a state was is gone when it has changed") {
    Network network;
    const int state = network.state(floats({4}));
    const int next = network.next_of(state);
    const int part = network.view(state, floats({2}), 0);
    const int rest = network.view(state, floats({2}), 8);
    const int made = network.temporary(floats({2}));
    network.add(add_number(part, network.view(next, floats({2}), 0), 2, 1));
    CHECK_THROWS_WITH_AS(network.add(add_number(part, made, 2, 1)),
                         doctest::Contains("a state that a step before it has changed"),
                         std::invalid_argument);
    network.add(add_number(rest, made, 2, 1));  // which nobody has changed yet
    network.add(add_number(made, network.view(next, floats({2}), 8), 2, 1));
    CHECK_THROWS_AS(network.finish({state}), std::invalid_argument);
    network.finish({});
    std::vector<float> held{1, 2, 3, 4};
    network.run({{held.data()}, {}});
    CHECK(held == std::vector<float>{2, 3, 5, 6});
}

TEST_CASE("a state becomes one value, which one step makes") {
    Network network;
    const int x = network.input(floats({4}));
    const int state = network.state(floats({4}));
    CHECK_THROWS_AS(network.add(add_number(x, state, 4, 1)), std::invalid_argument);
    CHECK_THROWS_AS(network.next_of(x), std::invalid_argument);
    const int next = network.next_of(state);
    CHECK_THROWS_AS(network.next_of(state), std::invalid_argument);
    CHECK_THROWS_AS(network.next_of(next), std::invalid_argument);
    const int made = network.temporary(floats({4}));
    CHECK_THROWS_AS(network.add(add_number(next, made, 4, 1)), std::invalid_argument);
    CHECK_THROWS_AS(network.finish({}), std::invalid_argument);
    network.add(add_number(x, next, 4, 1));
    CHECK_THROWS_WITH_AS(network.add(add_number(x, next, 4, 2)),
                         doctest::Contains("expected one writer"), std::invalid_argument);
    network.add(add_number(next, next, 4, 1));  // which goes on from there
    network.finish({});
    const std::vector<float> given{1, 2, 3, 4};
    std::vector<float> held(4);
    network.run({{given.data(), held.data()}, {}});
    CHECK(held == std::vector<float>{3, 4, 5, 6});
}

TEST_CASE("what a state becomes is made whole") {
    Network network;
    const int state = network.state(floats({4}));
    const int next = network.next_of(state);
    const int given = network.input(floats({2}));
    network.add(add_number(given, network.view(next, floats({2}), 0), 2, 1));
    CHECK_THROWS_WITH_AS(network.finish({}), doctest::Contains("8 of the 16 bytes of value 1"),
                         std::invalid_argument);
    network.add(add_number(given, network.view(next, floats({2}), 8), 2, 2));
    network.finish({});
    const std::vector<float> two{1, 2};
    std::vector<float> held(4);
    network.run({{held.data(), two.data()}, {}});
    CHECK(held == std::vector<float>{2, 3, 3, 4});
}

TEST_CASE("a step that reads a state otherwise than it replaces it does not write there") {
    Network network;
    const int state = network.state(floats({4}));
    const int next = network.next_of(state);
    NetworkStep step = add_number(state, next, 4, 1);
    step.reads.push_back(state);
    CHECK_THROWS_AS(network.add(step), std::invalid_argument);
}

TEST_CASE("pieces have no states") {
    Network piece;
    const int state = piece.state(floats({2}));
    piece.add(add_number(state, piece.next_of(state), 2, 1));
    piece.finish({});
    Network network;
    const int x = network.input(floats({4}));
    CHECK_THROWS_AS(piece_step(network, {.piece = piece, .inputs = {x}, .results = {}}, "chain"),
                    std::invalid_argument);
}

// AdamW on two parameters, of which one has no copy.
struct Parameters {
    Network network;
    std::vector<std::vector<float>> arrays = {};
    std::vector<double> settings{0.1, 0.9, 0.99, 1e-8, 0.5};
    std::vector<std::int64_t> counts{0, 4};
    std::vector<std::uint16_t> copy{};

    explicit Parameters(const std::vector<std::int64_t>& sizes) {
        UpdateValues values{.settings = network.input(dense_tensor("float64", 8, {5})),
                            .counts = network.input(dense_tensor("int64", 8, {2}))};
        for (std::size_t i = 0; i < sizes.size(); ++i) {
            UpdatedParameter it{.gradient = network.input(floats({sizes[i]})),
                                .number = static_cast<std::int64_t>(i)};
            arrays.emplace_back(static_cast<std::size_t>(sizes[i]), 0.5F);
            for (std::size_t state = 0; state < 3; ++state) {
                it.values.at(state) = network.state(floats({sizes[i]}));
                it.next.at(state) = network.next_of(it.values.at(state));
                arrays.emplace_back(static_cast<std::size_t>(sizes[i]), state == 0 ? 2.0F : 0.0F);
            }
            values.parameters.push_back(it);
        }
        network.add(update_step(network, update_rule("adamw"), values, "all"));
        network.finish({});
    }

    void run() {
        std::vector<const void*> inputs{settings.data(), counts.data()};
        for (const std::vector<float>& it : arrays) inputs.push_back(it.data());
        network.run({inputs, {}});
    }
};

TEST_CASE("an update changes parameters and moments, by settings of the run") {
    Parameters it({3, 5});
    it.run();
    // The first step is as long as the learning rate, whatever the gradient is.
    CHECK(it.arrays[1][2] == doctest::Approx(2 * (1 - 0.1 * 0.5) - 0.1));
    CHECK(it.arrays[2][0] == doctest::Approx(0.1 * 0.5));
    CHECK(it.arrays[3][0] == doctest::Approx(0.01 * 0.25));
    const float before = it.arrays[1][2];
    it.settings[0] = 0;
    it.run();
    CHECK(it.arrays[1][2] == before);
}

TEST_CASE("gradients are clipped by the norm of all of them") {
    Network network;
    const int one = network.input(floats({2})), other = network.input(floats({1}));
    const int limit = network.input(dense_tensor("float64", 8, {}));
    const int norm = network.temporary(floats({})), factor = network.temporary(floats({}));
    network.add(clip_step(
        network, {.gradients = {one, other}, .limit = limit, .norm = norm, .factor = factor},
        "all"));
    network.finish({norm, factor});
    const std::vector<float> first{2, 3}, second{6};
    for (const auto& [most, expected] : {std::pair(14.0, 1.0), std::pair(3.5, 0.5)}) {
        float found = 0, scale = 0;
        network.run({{first.data(), second.data(), &most}, {&found, &scale}});
        CHECK(found == 7);
        CHECK(scale == doctest::Approx(expected));
    }
}

}  // namespace
}  // namespace dlprim
