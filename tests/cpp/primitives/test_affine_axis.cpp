#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include <doctest/doctest.h>

#include "primitives/nest/affine_axis.h"

namespace dlprim {
namespace {

// Reading, output i reads input i * factor + index * shift_factor + constant.
struct Case {
    std::int64_t in = 0;
    std::int64_t out = 0;
    AxisSum sum = {};
};

// A product: which output it adds to, through which shift, from which input.
struct Product {
    std::int64_t out = 0;
    std::int64_t shift = 0;
    std::int64_t in = 0;

    friend auto operator<=>(const Product&, const Product&) = default;
};

using Products = std::vector<Product>;

Products sorted(Products products) {
    std::sort(products.begin(), products.end());
    return products;
}

// By the definition, for `out` outputs over `in` inputs.
Products reading_products(const Case& it) {
    Products products;
    for (std::int64_t i = 0; i < it.out; ++i) {
        for (std::int64_t shift = 0; shift < it.sum.shifts; ++shift) {
            const std::int64_t in =
                i * it.sum.factor + shift * it.sum.shift_factor + it.sum.constant;
            if (in >= 0 && in < it.in) products.push_back({i, shift, in});
        }
    }
    return sorted(products);
}

// The same products as they add to the inputs.
Products solved_products(const Case& it) {
    Products products = reading_products(it);
    for (Product& product : products) std::swap(product.out, product.in);
    return sorted(products);
}

std::int64_t output_of(const AxisPhase& phase, std::int64_t i) {
    return phase.out_begin + i * phase.out_step;
}

std::int64_t input_of(const AxisPhase& phase, const Shift& shift, std::int64_t i) {
    return i * phase.in_step + shift.offset;
}

// Every output of every phase with the shifts that shifts_at names.
Products products_of(const Axis& axis) {
    Products products;
    for (const AxisPhase& phase : axis.phases) {
        for (std::int64_t i = 0; i < phase.count; ++i) {
            for (const Shift& shift : shifts_at(axis, phase, i)) {
                products.push_back({output_of(phase, i), shift.index, input_of(phase, shift, i)});
            }
        }
    }
    return sorted(products);
}

Products products_of(const Axis& axis, Cover kind) {
    Products products;
    for (const AxisPhase& phase : axis.phases) {
        for (const AxisPiece& piece : cover(axis, phase, kind)) {
            for (std::int64_t i = piece.outputs.begin; i < piece.outputs.end; ++i) {
                for (const Shift& shift : piece.shifts) {
                    products.push_back(
                        {output_of(phase, i), shift.index, input_of(phase, shift, i)});
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

// outputs_of against a look at every output.
bool ranges_are_exact(const Axis& axis, const AxisPhase& phase) {
    return std::all_of(phase.shifts.begin(), phase.shifts.end(), [&](const Shift& shift) {
        const Range range = outputs_of(axis, phase, shift);
        for (std::int64_t i = 0; i < phase.count; ++i) {
            const std::int64_t in = input_of(phase, shift, i);
            const bool exists = in >= 0 && in < axis.in;
            if (exists != (i >= range.begin && i < range.end)) return false;
        }
        return range.begin >= 0 && range.size() >= 0 &&
               (range.size() == 0 || range.end <= phase.count);
    });
}

// Walks the pieces as a driver does: `first` on an output before anything else, `last` after all
// else, each once.
bool begins_and_ends_each_output(const AxisPhase& phase, const std::vector<AxisPiece>& pieces) {
    enum class State : std::uint8_t { untouched, begun, ended };
    std::vector<State> states(static_cast<std::size_t>(phase.count), State::untouched);
    for (const AxisPiece& piece : pieces) {
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

bool is_disjoint_form(const std::vector<AxisPiece>& pieces) {
    return std::all_of(pieces.begin(), pieces.end(),
                       [](const AxisPiece& piece) { return piece.first && piece.last; });
}

bool is_overlapping_form(const AxisPhase& phase, const std::vector<AxisPiece>& pieces) {
    const Range all{0, phase.count};
    if (pieces.front().outputs != all || pieces.back().outputs != all) return false;
    return pieces.size() == 1 || pieces.back().shifts.empty();
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
                            body({in, room / stride + 1, {size, stride, dilation, -pad}});
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
        const std::vector<AxisPiece> apart = cover(axis, phase, Cover::disjoint);
        REQUIRE(begins_and_ends_each_output(phase, apart));
        REQUIRE(is_disjoint_form(apart));
        const std::vector<AxisPiece> taken_up = cover(axis, phase, Cover::overlapping);
        REQUIRE(begins_and_ends_each_output(phase, taken_up));
        REQUIRE(is_overlapping_form(phase, taken_up));
    }
}

TEST_CASE("reading and solving name exactly the products of the definition") {
    int cases = 0;
    for_cases([&](const Case& it) {
        CAPTURE(it.in);
        CAPTURE(it.out);
        CAPTURE(it.sum.shifts);
        CAPTURE(it.sum.factor);
        CAPTURE(it.sum.constant);
        CAPTURE(it.sum.shift_factor);
        check_axis(reading_axis(it.in, it.out, it.sum), reading_products(it));
        check_axis(solved_axis(it.out, it.in, it.sum), solved_products(it));
        ++cases;
    });
    CHECK(cases > 5000);
}

TEST_CASE("a reading axis is one phase, a solved one has one for each remainder of the factor") {
    const AxisSum sum{.shifts = 3, .factor = 2, .constant = -1};
    const Axis reading = reading_axis(8, 4, sum);
    REQUIRE(reading.phases.size() == 1);
    CHECK(reading.phases[0].in_step == 2);
    CHECK(reading.phases[0].shifts == std::vector<Shift>{{0, -1}, {1, 0}, {2, 1}});
    const Axis solved = solved_axis(4, 8, sum);
    REQUIRE(solved.phases.size() == 2);
    CHECK(solved.phases[0].out_step == 2);
    CHECK(solved.phases[0].shifts == std::vector<Shift>{{1, 0}});
    CHECK(solved.phases[1].shifts == std::vector<Shift>{{0, 1}, {2, 0}});
    CHECK(solved_axis(1, 1, {.shifts = 1, .factor = 4}).phases.size() == 1);
}

TEST_CASE("covers of a row with a rim") {
    const Axis axis = reading_axis(5, 5, {.shifts = 3, .constant = -1});
    const Shift left{0, -1};
    const Shift middle{1, 0};
    const Shift right{2, 1};
    CHECK(cover(axis, axis.phases[0], Cover::disjoint) ==
          std::vector<AxisPiece>{{{0, 1}, {middle, right}, true, true},
                                 {{1, 4}, {left, middle, right}, true, true},
                                 {{4, 5}, {left, middle}, true, true}});
    CHECK(cover(axis, axis.phases[0], Cover::overlapping) ==
          std::vector<AxisPiece>{{{0, 5}, {middle}, true, false},
                                 {{1, 5}, {left}, false, false},
                                 {{0, 4}, {right}, false, false},
                                 {{0, 5}, {}, false, true}});
}

TEST_CASE("a row without a rim is one piece, and so is one that no shift reaches") {
    const Axis inside = reading_axis(7, 5, {.shifts = 3});
    const Axis outside = solved_axis(1, 3, {.shifts = 1, .factor = 3});
    REQUIRE(outside.phases.size() == 3);
    for (const Cover kind : {Cover::disjoint, Cover::overlapping}) {
        const std::vector<AxisPiece> pieces = cover(inside, inside.phases[0], kind);
        REQUIRE(pieces.size() == 1);
        CHECK(pieces[0].shifts.size() == 3);
        CHECK(cover(outside, outside.phases[1], kind) ==
              std::vector<AxisPiece>{{{0, 1}, {}, true, true}});
    }
}

}  // namespace
}  // namespace dlprim
