#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include <doctest/doctest.h>

#include "primitives/conv/conv_taps.h"

namespace dlprim {
namespace {

// One axis of a convolution: forward, output i reads input i * stride + index * dilation - pad.
struct Case {
    std::int64_t in = 0;
    std::int64_t out = 0;
    Filter filter = {};
};

// A product of the convolution: which output it adds to, through which tap, from which input.
struct Product {
    std::int64_t out = 0;
    std::int64_t tap = 0;
    std::int64_t in = 0;

    friend auto operator<=>(const Product&, const Product&) = default;
};

using Products = std::vector<Product>;

Products sorted(Products products) {
    std::sort(products.begin(), products.end());
    return products;
}

// By the definition, `out` outputs of a forward convolution over `in` inputs.
Products forward_products(const Case& it) {
    Products products;
    for (std::int64_t i = 0; i < it.out; ++i) {
        for (std::int64_t tap = 0; tap < it.filter.size; ++tap) {
            const std::int64_t in = i * it.filter.stride + tap * it.filter.dilation - it.filter.pad;
            if (in >= 0 && in < it.in) products.push_back({i, tap, in});
        }
    }
    return sorted(products);
}

// The same products as the gradient of the input collects them.
Products backward_products(const Case& it) {
    Products products = forward_products(it);
    for (Product& product : products) std::swap(product.out, product.in);
    return sorted(products);
}

std::int64_t output_of(const AxisPhase& phase, std::int64_t i) {
    return phase.out_begin + i * phase.out_step;
}

std::int64_t input_of(const AxisPhase& phase, const Tap& tap, std::int64_t i) {
    return i * phase.in_step + tap.offset;
}

// Every output of every phase with the taps that valid_taps names.
Products products_of(const Axis& axis) {
    Products products;
    for (const AxisPhase& phase : axis.phases) {
        for (std::int64_t i = 0; i < phase.count; ++i) {
            for (const Tap& tap : valid_taps(axis, phase, i)) {
                products.push_back({output_of(phase, i), tap.index, input_of(phase, tap, i)});
            }
        }
    }
    return sorted(products);
}

Products products_of(const Axis& axis, Cover kind) {
    Products products;
    for (const AxisPhase& phase : axis.phases) {
        for (const Piece& piece : cover(axis, phase, kind)) {
            for (std::int64_t i = piece.outputs.begin; i < piece.outputs.end; ++i) {
                for (const Tap& tap : piece.taps) {
                    products.push_back({output_of(phase, i), tap.index, input_of(phase, tap, i)});
                }
            }
        }
    }
    return sorted(products);
}

bool holds_every_output_once(const Axis& axis) {
    std::vector<int> times(static_cast<std::size_t>(axis.out));
    for (const AxisPhase& phase : axis.phases) {
        for (std::int64_t i = 0; i < phase.count; ++i) {
            ++times.at(static_cast<std::size_t>(output_of(phase, i)));
        }
    }
    return std::all_of(times.begin(), times.end(), [](int count) { return count == 1; });
}

// valid_outputs against a look at every output.
bool ranges_are_exact(const Axis& axis, const AxisPhase& phase) {
    return std::all_of(phase.taps.begin(), phase.taps.end(), [&](const Tap& tap) {
        const Range range = valid_outputs(axis, phase, tap);
        for (std::int64_t i = 0; i < phase.count; ++i) {
            const std::int64_t in = input_of(phase, tap, i);
            const bool exists = in >= 0 && in < axis.in;
            if (exists != (i >= range.begin && i < range.end)) return false;
        }
        return range.begin >= 0 && range.size() >= 0 &&
               (range.size() == 0 || range.end <= phase.count);
    });
}

// Walks the pieces as a driver does: `first` on an output before anything else, `last` after all
// else, each once.
bool begins_and_ends_each_output(const AxisPhase& phase, const std::vector<Piece>& pieces) {
    enum class State : std::uint8_t { untouched, begun, ended };
    std::vector<State> states(static_cast<std::size_t>(phase.count), State::untouched);
    for (const Piece& piece : pieces) {
        if (piece.outputs.size() <= 0) return false;
        for (std::int64_t i = piece.outputs.begin; i < piece.outputs.end; ++i) {
            State& state = states.at(static_cast<std::size_t>(i));
            if (piece.first != (state == State::untouched) || state == State::ended) return false;
            state = piece.last ? State::ended : State::begun;
        }
    }
    return std::all_of(states.begin(), states.end(),
                       [](State state) { return state == State::ended; });
}

bool is_disjoint_form(const std::vector<Piece>& pieces) {
    return std::all_of(pieces.begin(), pieces.end(),
                       [](const Piece& piece) { return piece.first && piece.last; });
}

bool is_overlapping_form(const AxisPhase& phase, const std::vector<Piece>& pieces) {
    const Range all{0, phase.count};
    if (pieces.front().outputs != all || pieces.back().outputs != all) return false;
    return pieces.size() == 1 || pieces.back().taps.empty();
}

void for_cases(const std::function<void(const Case&)>& body) {
    for (std::int64_t in = 1; in <= 9; ++in) {
        for (std::int64_t size = 1; size <= 5; ++size) {
            for (const std::int64_t stride : {1, 2, 3, 5}) {
                for (const std::int64_t dilation : {1, 2, 4}) {
                    for (const std::int64_t pad : {0, 1, 2, 5, 13}) {
                        for (const std::int64_t behind : {0, 1, 7}) {
                            const std::int64_t room = in + pad + behind - (size - 1) * dilation - 1;
                            if (room < 0) continue;
                            body({in, room / stride + 1, {size, stride, pad, dilation}});
                        }
                    }
                }
            }
        }
    }
}

void check_axis(const Axis& axis, const Products& expected) {
    REQUIRE(holds_every_output_once(axis));
    REQUIRE(products_of(axis) == expected);
    for (const Cover kind : {Cover::disjoint, Cover::overlapping}) {
        REQUIRE(products_of(axis, kind) == expected);
    }
    for (const AxisPhase& phase : axis.phases) {
        REQUIRE(ranges_are_exact(axis, phase));
        const std::vector<Piece> apart = cover(axis, phase, Cover::disjoint);
        REQUIRE(begins_and_ends_each_output(phase, apart));
        REQUIRE(is_disjoint_form(apart));
        const std::vector<Piece> taken_up = cover(axis, phase, Cover::overlapping);
        REQUIRE(begins_and_ends_each_output(phase, taken_up));
        REQUIRE(is_overlapping_form(phase, taken_up));
    }
}

TEST_CASE("forward and backward name exactly the products of the definition") {
    int cases = 0;
    for_cases([&](const Case& it) {
        CAPTURE(it.in);
        CAPTURE(it.out);
        CAPTURE(it.filter.size);
        CAPTURE(it.filter.stride);
        CAPTURE(it.filter.pad);
        CAPTURE(it.filter.dilation);
        check_axis(forward_axis(it.in, it.out, it.filter), forward_products(it));
        check_axis(backward_axis(it.out, it.in, it.filter), backward_products(it));
        ++cases;
    });
    CHECK(cases > 5000);
}

TEST_CASE("a forward axis is one phase, a backward axis one for each remainder of the stride") {
    const Filter filter{.size = 3, .stride = 2, .pad = 1};
    const Axis forward = forward_axis(8, 4, filter);
    REQUIRE(forward.phases.size() == 1);
    CHECK(forward.phases[0].in_step == 2);
    CHECK(forward.phases[0].taps == std::vector<Tap>{{0, -1}, {1, 0}, {2, 1}});
    const Axis backward = backward_axis(4, 8, filter);
    REQUIRE(backward.phases.size() == 2);
    CHECK(backward.phases[0].out_step == 2);
    CHECK(backward.phases[0].taps == std::vector<Tap>{{1, 0}});
    CHECK(backward.phases[1].taps == std::vector<Tap>{{0, 1}, {2, 0}});
    CHECK(backward_axis(1, 1, {.size = 1, .stride = 4}).phases.size() == 1);
}

TEST_CASE("covers of a row with a rim") {
    const Axis axis = forward_axis(5, 5, {.size = 3, .pad = 1});
    const Tap left{0, -1};
    const Tap middle{1, 0};
    const Tap right{2, 1};
    CHECK(cover(axis, axis.phases[0], Cover::disjoint) ==
          std::vector<Piece>{{{0, 1}, {middle, right}, true, true},
                             {{1, 4}, {left, middle, right}, true, true},
                             {{4, 5}, {left, middle}, true, true}});
    CHECK(cover(axis, axis.phases[0], Cover::overlapping) ==
          std::vector<Piece>{{{0, 5}, {middle}, true, false},
                             {{1, 5}, {left}, false, false},
                             {{0, 4}, {right}, false, false},
                             {{0, 5}, {}, false, true}});
}

TEST_CASE("a row without a rim is one piece, and so is one that no tap reaches") {
    const Axis inside = forward_axis(7, 5, {.size = 3});
    const Axis outside = backward_axis(1, 3, {.size = 1, .stride = 3});
    REQUIRE(outside.phases.size() == 3);
    for (const Cover kind : {Cover::disjoint, Cover::overlapping}) {
        const std::vector<Piece> pieces = cover(inside, inside.phases[0], kind);
        REQUIRE(pieces.size() == 1);
        CHECK(pieces[0].taps.size() == 3);
        CHECK(cover(outside, outside.phases[1], kind) ==
              std::vector<Piece>{{{0, 1}, {}, true, true}});
    }
}

}  // namespace
}  // namespace dlprim
