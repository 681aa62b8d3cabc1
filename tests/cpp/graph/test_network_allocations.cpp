// A run takes the memory of the plan once, from the pool that its steps share, and after that
// nothing.
#include <cstdint>
#include <memory>
#include <vector>

#include <doctest/doctest.h>

#include "allocation_count.h"
#include "graph/copy_step.h"
#include "graph/elements/gather_step.h"
#include "graph/network.h"
#include "graph/piece_step.h"
#include "graph/update_step.h"
#include "primitives/linear/linear.h"
#include "primitives/tensor/parallel.h"

namespace dlprim {
namespace {

using testing::allocations;

NetworkTensor floats(std::vector<std::int64_t> shape) {
    return dense_tensor("float32", 4, std::move(shape));
}

// A hundred runs in a row, and few calls between the first run and these: how much memory two
// threads need at a time is known when their steps have met in every way.
template <class Run>
bool comes_to_allocate_nothing(const Run& run) {
    constexpr std::int64_t kMost = 40;
    run();
    const std::int64_t first = allocations().calls;
    for (int attempt = 0; attempt < 50; ++attempt) {
        const std::int64_t calls = allocations().calls;
        for (int i = 0; i < 100; ++i) run();
        if (allocations().calls == calls) return calls - first <= kMost;
    }
    return false;
}

// Appends three linear layers from rows of floats on; the last result.
int add_products(Network& network, const Linear& linear, int value, int weights) {
    const NetworkTensor rows = network.tensor(value);
    for (int i = 0; i < 3; ++i) {
        const int dst = network.temporary(rows);
        network.add({.kind = "linear",
                     .label = "product",
                     .reads = {value, weights},
                     .writes = {dst},
                     .flops = 2e6,
                     .run = [=, &linear](const Addresses& at) {
                         linear.forward({.src = at[value], .weights = at[weights], .dst = at[dst]});
                     }});
        value = dst;
    }
    return value;
}

TEST_CASE("a network that ran before takes no memory") {
    const int threads = num_threads();
    set_num_threads(1);
    constexpr std::int64_t kRows = 200, kWide = 64;
    const Linear linear({.shape = {kRows, kWide, kWide}, .layout = Format::nhwc});
    const std::vector<float> weights(kWide * kWide, 1);
    const std::vector<std::int64_t> places(kRows, -1);
    Network network;
    const int x = network.input(floats({kWide, kRows}));
    const int w = network.constant(floats({kWide, kWide}), weights.data());
    const int indices = network.constant(dense_tensor("int64", 8, {kRows}), places.data());
    NetworkTensor transposed = floats({kRows, kWide});
    transposed.strides = {4, kRows * 4};
    const int turned = network.temporary(floats({kRows, kWide}));
    network.add(copy_step(network, network.view(x, transposed, 0), turned, "turned"));
    const int value = add_products(network, linear, turned, w);
    const int last = network.temporary(floats({kRows, kWide}));
    network.add(gather_step(network, {.table = value, .indices = indices, .dst = last}, "rows"));
    network.finish({last, value});
    const std::vector<float> src(kWide * kRows);
    std::vector<float> first(kWide * kRows), second(kWide * kRows);
    const std::vector<const void*> inputs{src.data()};
    const std::vector<void*> results{first.data(), second.data()};
    const std::int64_t before = allocations().scratch_bytes;
    network.run({inputs, results});
    CHECK(allocations().scratch_bytes - before >= network.planned_bytes());
    network.run({inputs, results});  // by now the pool's list of pieces is as long as it gets
    const std::int64_t calls = allocations().calls;
    for (int i = 0; i < 100; ++i) network.run({inputs, results});
    CHECK(allocations().calls == calls);
    set_num_threads(threads);
}

TEST_CASE("nor does one whose branches run side by side") {
    const int threads = num_threads();
    set_num_threads(2);
    constexpr std::int64_t kRows = 200, kWide = 64;
    const Linear linear({.shape = {kRows, kWide, kWide}, .layout = Format::nhwc});
    const std::vector<float> weights(kWide * kWide, 1);
    Network network;
    const int x = network.input(floats({kRows, kWide}));
    const int w = network.constant(floats({kWide, kWide}), weights.data());
    std::vector<int> values;
    for (int branch = 0; branch < 3; ++branch) {
        values.push_back(add_products(network, linear, x, w));
    }
    network.finish(values);
    REQUIRE(network.stretches().size() == 1);
    const std::vector<float> src(kWide * kRows);
    std::vector<std::vector<float>> made(3, std::vector<float>(kWide * kRows));
    const std::vector<const void*> inputs{src.data()};
    const std::vector<void*> results{made[0].data(), made[1].data(), made[2].data()};
    CHECK(comes_to_allocate_nothing([&] { network.run({inputs, results}); }));
    set_num_threads(threads);
}

TEST_CASE("nor does one whose rows run in pieces") {
    const int threads = num_threads();
    set_num_threads(2);
    constexpr std::int64_t kRows = 400, kPiece = 40, kWide = 64;
    const Linear linear({.shape = {kPiece, kWide, kWide}, .layout = Format::nhwc});
    const std::vector<float> weights(kWide * kWide, 1);
    Network piece;
    const int rows = piece.input(floats({kPiece, kWide}));
    const int w = piece.constant(floats({kWide, kWide}), weights.data());
    piece.finish({add_products(piece, linear, rows, w)});
    Network network;
    const int x = network.input(floats({kRows, kWide}));
    const int y = network.temporary(floats({kRows, kWide}));
    network.add(piece_step(network, {.piece = piece, .inputs = {x}, .results = {y}}, "chain"));
    network.finish({y});
    const std::vector<float> src(kWide * kRows);
    std::vector<float> made(kWide * kRows);
    const std::vector<const void*> inputs{src.data()};
    const std::vector<void*> results{made.data()};
    CHECK(comes_to_allocate_nothing([&] { network.run({inputs, results}); }));
    set_num_threads(threads);
}

TEST_CASE("nor does one that changes states by an optimiser's step") {
    const int threads = num_threads();
    set_num_threads(1);
    constexpr std::int64_t kElements = 40000;
    Network network;
    UpdateValues values{.settings = network.input(dense_tensor("float64", 8, {5})),
                        .counts = network.input(dense_tensor("int64", 8, {1}))};
    const int gradient = network.input(floats({kElements}));
    UpdatedParameter updated{.gradient = gradient};
    for (std::size_t i = 0; i < 3; ++i) {
        updated.values.at(i) = network.state(floats({kElements}));
        updated.next.at(i) = network.next_of(updated.values.at(i));
    }
    values.parameters.push_back(updated);
    const int limit = network.input(dense_tensor("float64", 8, {}));
    const int norm = network.temporary(floats({}));
    values.factor = network.temporary(floats({}));
    network.add(clip_step(
        network, {.gradients = {gradient}, .limit = limit, .norm = norm, .factor = values.factor},
        "clip"));
    network.add(update_step(network, update_rule("lamb"), values, "step"));
    network.finish({});
    const std::vector<double> settings{0.1, 0.9, 0.99, 1e-8, 0.5};
    const std::int64_t count = 0;
    const double most = 1;
    std::vector<std::vector<float>> arrays(4, std::vector<float>(kElements, 0.5F));
    const std::vector<const void*> inputs{
        settings.data(),  &count, arrays[0].data(), arrays[1].data(), arrays[2].data(),
        arrays[3].data(), &most};
    const std::vector<void*> results;
    for (int run = 0; run < 2; ++run) network.run({inputs, results});
    const std::int64_t calls = allocations().calls;
    for (int run = 0; run < 100; ++run) network.run({inputs, results});
    CHECK(allocations().calls == calls);
    set_num_threads(threads);
}

}  // namespace
}  // namespace dlprim
