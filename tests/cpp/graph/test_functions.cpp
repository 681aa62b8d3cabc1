// Functions of arrays in a network: what they are refused for, and ends of integers.
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "graph/elements/fold_step.h"
#include "graph/functions/function_step.h"
#include "graph/functions/routed_rows.h"
#include "graph/functions/tree_sums.h"
#include "graph/network.h"

using namespace dlprim;

namespace {

using Shape = std::vector<std::int64_t>;

struct Trees {
    Shape x = {3, 4}, sums = {3, 2}, seen = {3, 2};
    std::int64_t words = sizeof(TreeNode<float>) / 4;

    NetworkStep step(Network& network) const {
        const auto input = [&](const char* dtype, const Shape& shape) {
            return network.input(dense_tensor(dtype, 4, shape));
        };
        const ArrayCall call{
            .function = "tree_sums",
            .numbers = {{"aggregate", 1}},
            .inputs = {input("float32", x), input("int32", {1, words}), input("int32", {1}),
                       input("int32", {2}), input("int32", {1}), input("float32", {1})},
            .outputs = {network.temporary(dense_tensor("float32", 4, sums)),
                        network.temporary(dense_tensor("float32", 4, seen))}};
        return function_step(network, call, "trees");
    }

    bool fits() const {
        Network network;
        try {
            step(network);
        } catch (const std::invalid_argument&) {
            return false;
        }
        return true;
    }
};

template <class T>
std::vector<T> means(const std::string& dtype, const std::vector<T>& x, const Shape& shape) {
    Network network;
    const auto element = static_cast<std::int64_t>(sizeof(T));
    const int src = network.input(dense_tensor(dtype, element, shape));
    const int dst = network.temporary(dense_tensor(dtype, element, {shape[0], shape[2]}));
    network.add(fold_step(network, {.src = src, .dst = dst}, {.function = "mean"}, "mean"));
    network.finish({dst});
    std::vector<T> result(static_cast<std::size_t>(shape[0] * shape[2]));
    network.run({.inputs = {x.data()}, .results = {result.data()}});
    return result;
}

}  // namespace

TEST_CASE("trees have as many numbers that were seen as sums") {
    CHECK(Trees{}.fits());
    CHECK_FALSE(Trees{.seen = {3, 1}}.fits());
    CHECK_FALSE(Trees{.seen = {3, 3}}.fits());
    CHECK_FALSE(Trees{.sums = {2, 2}, .seen = {2, 2}}.fits());
    CHECK_FALSE(Trees{.x = {3, 0}}.fits());
    CHECK_FALSE(Trees{.words = 3}.fits());
}

TEST_CASE("rows go to one expert at least") {
    Network network;
    const int rows = network.input(dense_tensor("float32", 4, {5, 3}));
    const int shares = network.input(dense_tensor("float32", 4, {0, 5}));
    const int dst = network.temporary(dense_tensor("float32", 4, {5, 2}));
    const RoutedRows routed{
        .experts = {}, .sizes = {1}, .rows = rows, .shares = shares, .dst = dst};
    CHECK_THROWS_AS(routed_rows_step(network, routed, "experts"), std::invalid_argument);
}

TEST_CASE("means of integers are whole, and exact beyond what a double holds") {
    const std::int64_t wide = (std::int64_t{1} << 60) + 1;
    CHECK(means<std::int64_t>("int64", {wide, wide, wide + 3}, {1, 3, 1}) == std::vector{wide + 1});
    CHECK(means<std::int64_t>("int64", {-7, -8, 2, 3}, {1, 2, 2}) ==
          std::vector<std::int64_t>{-2, -2});
    const std::uint64_t most = std::numeric_limits<std::uint64_t>::max() / 2;
    CHECK(means<std::uint64_t>("uint64", {most, most}, {1, 2, 1}) == std::vector{most});
    CHECK(means<std::int8_t>("int8", {127, 127, 100, -128}, {2, 2, 1}) ==
          std::vector<std::int8_t>{127, -14});
    CHECK(means<std::int32_t>("int32", {}, {2, 0, 1}) == std::vector<std::int32_t>{0, 0});
    CHECK(means<double>("float64", {1, 2}, {1, 2, 1}) == std::vector<double>{1.5});
}
