#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "cases.h"
#include "draw.h"
#include "lang/interpreter.h"
#include "lang/parser.h"
#include "primitives/formulas/compiled_definition.h"
#include "primitives/formulas/explanation.h"

namespace dlprim {
namespace {

using testing::Draw;

struct Index {
    std::string name;
    std::int64_t extent;
    bool in_c, in_a, in_b;
};

// A place of an operand and the last value that it has.
struct Place {
    std::string text;
    std::int64_t last;
};

struct Problem {
    std::string text;
    std::string end;  // what stands behind it, may be empty
    CompiledDefinition::Arrays arrays;
    Arrays exact;               // operands, and what stands in the result before and after
    DType type = DType::f32;    // of all arrays, but of bytes,
    DType second = DType::f32;  // the second factor's,
    DType result = DType::f32;  // and the result's
    std::vector<std::vector<float>> values;
    std::vector<double> before;
};

// Sums of multiples of 1/64, which are exact in float32; in bfloat16 of integers, which are exact
// up to 256; of bytes any.
double value_of(Draw& draw, DType type) {
    if (type == DType::u8) return double(draw.from(0, 255));
    if (type == DType::s8) return double(draw.from(-128, 127));
    return type == DType::bf16 ? double(draw.from(-1, 1)) : double(draw.from(-8, 8)) / 8;
}

void add_array(Draw& draw, Problem& to, const std::string& name, const Shape& shape) {
    Array& array = to.exact[name];
    array.shape = shape;
    std::int64_t count = 1;
    for (const std::int64_t extent : shape) count *= extent;
    const DType type = name == "w" ? to.second : to.type;
    for (std::int64_t i = 0; i < count; ++i) array.values.push_back(value_of(draw, type));
}

// Of values that are exact in both.
std::vector<std::uint16_t> bfloat16_of(const std::vector<float>& values) {
    std::vector<std::uint16_t> made;
    for (const float value : values) {
        made.push_back(std::uint16_t(std::bit_cast<std::uint32_t>(value) >> 16));
    }
    return made;
}

std::vector<std::uint8_t> bytes_of(const std::vector<float>& values) {
    std::vector<std::uint8_t> made;
    for (const float value : values) made.push_back(std::uint8_t(int(value)));
    return made;
}

void set_types(Draw& draw, Problem& to) {
    constexpr std::array bytes = {DType::s8, DType::u8};
    if (draw.once_in(3)) {
        to.type = to.second = to.result = DType::bf16;
    } else if (draw.once_in(3)) {
        to.type = draw.one_of(bytes);
        to.second = draw.one_of(bytes);
        to.result = DType::s32;
    }
}

std::vector<Index> drawn_indices(Draw& draw) {
    std::vector<Index> indices;
    const auto add = [&](std::int64_t count, bool c, bool a, bool b) {
        for (; count > 0; --count) {
            const std::int64_t extent = draw.once_in(5)   ? draw.from(10, 40)
                                        : draw.once_in(8) ? 1
                                                          : draw.from(2, 6);
            indices.push_back({std::string(1, char('f' + indices.size())), extent, c, a, b});
        }
    };
    add(draw.from(0, 2), true, true, false);
    add(draw.from(0, 2), true, false, true);
    add(draw.from(1, 3), false, true, true);
    add(draw.once_in(3) ? 1 : 0, true, true, true);
    // Longer than what a call of the kernel goes through.
    if (draw.once_in(5)) {
        for (Index& it : indices) it.extent = std::min<std::int64_t>(it.extent, 3);
        const auto sum =
            std::find_if(indices.begin(), indices.end(), [](const Index& it) { return !it.in_c; });
        sum->extent = draw.from(257, 800);
    }
    return indices;
}

template <typename Element>
void shuffle(Draw& draw, std::vector<Element>& all) {
    for (std::size_t i = all.size(); i > 1; --i) {
        std::swap(all[i - 1], all[std::size_t(draw.from(0, std::int64_t(i) - 1))]);
    }
}

// Places of an operand: indices alone, with steps, or two of them in one place, which slide along
// each other.
std::vector<Place> drawn_places(Draw& draw, const std::vector<Index>& indices,
                                bool Index::* is_there) {
    std::vector<Place> places;
    for (const Index& it : indices) {
        if (!(it.*is_there)) continue;
        const std::int64_t step = draw.once_in(6) ? draw.from(2, 3) : 1;
        const std::string term = (step > 1 ? std::to_string(step) + "*" : "") + it.name;
        const std::int64_t last = step * (it.extent - 1);
        if (!places.empty() && is_there != &Index::in_c && draw.once_in(4)) {
            places.back().text += "+" + term;
            places.back().last += last;
        } else {
            places.push_back({term, last});
        }
    }
    shuffle(draw, places);
    return places;
}

std::string read_of(Draw& draw, Problem& to, const std::string& name,
                    const std::vector<Place>& places) {
    const bool may_lie_outside = draw.once_in(6);
    std::string text = name + (may_lie_outside ? "?(" : "(");
    Shape shape;
    for (const Place& place : places) {
        const std::int64_t shift = may_lie_outside ? draw.from(0, 2) : 0;
        text += (shape.empty() ? "" : ",") + place.text;
        if (shift > 0) text += "-" + std::to_string(shift);
        // Dimensions that an index alone goes along are as long as it is.
        const std::int64_t more = place.text.size() > 1 ? draw.from(0, 1) : 0;
        shape.push_back(std::max<std::int64_t>(place.last + more - shift, 0) + 1);
    }
    add_array(draw, to, name, shape);
    return text + ")";
}

// In place on the result: a bias along some of its indices, relu, or both.
void add_end(Draw& draw, Problem& to, const std::vector<Index>& places) {
    std::string indices, of_bias;
    Shape shape;
    for (const Index& it : places) {
        indices += (indices.empty() ? "" : ",") + it.name;
        if (!of_bias.empty() && !draw.once_in(3)) continue;
        of_bias += (of_bias.empty() ? "" : ",") + it.name;
        shape.push_back(it.extent);
    }
    add_array(draw, to, "v", shape);
    const std::string y = "y(" + indices + ")";
    const std::string sum = y + " + v(" + of_bias + ")";
    to.end = y + " = " + (draw.once_in(3) ? sum : "relu(" + sum + ")");
}

Definition definition_of(const Problem& it) {
    Definition made = parse_contraction(it.text);
    if (it.end.empty()) return made;
    const Definition end = parse_contraction(it.end);
    for (const auto& parameter : end.parameters) {
        if (parameter.name == "v") made.parameters.push_back(parameter);
    }
    made.statements.push_back(end.statements.front());
    return made;
}

Problem drawn(Draw& draw) {
    Problem made;
    set_types(draw, made);
    const bool is_bytes = made.result == DType::s32;
    const std::vector<Index> indices = drawn_indices(draw);
    std::vector<Index> places;
    for (const Index& it : indices) {
        made.arrays.given[it.name] = it.extent;
        if (it.in_c) places.push_back(it);
    }
    shuffle(draw, places);
    const bool adds = draw.once_in(5);
    const bool is_scaled = !adds && !is_bytes && draw.once_in(5);
    made.text = "y(";
    Shape shape;
    for (const Index& it : places) {
        made.text += (shape.empty() ? "" : ",") + it.name;
        shape.push_back(it.extent);
    }
    made.text += adds ? ") += " : is_scaled ? ") +=! 0.5 * " : ") +=! ";
    made.text += read_of(draw, made, "x", drawn_places(draw, indices, &Index::in_a)) + " * ";
    made.text += read_of(draw, made, "w", drawn_places(draw, indices, &Index::in_b));
    if (!places.empty() && !is_bytes && draw.once_in(2)) add_end(draw, made, places);
    for (const char* name : {"x", "w", "v"}) {
        if (!made.exact.contains(name)) continue;
        const Array& array = made.exact.at(name);
        made.values.emplace_back(array.values.begin(), array.values.end());
        const DType dtype = std::string(name) == "w" ? made.second : made.type;
        made.arrays.parameters.push_back(dense_view(name, dtype, array.shape));
    }
    add_array(draw, made, "y", shape);
    made.before = made.exact.at("y").values;
    made.arrays.results["y"] = shape;
    made.arrays.result_type = made.result;
    interpret(definition_of(made), made.exact, made.arrays.given);
    return made;
}

// Of operands that are stored, what stands in the result afterwards.
template <typename Operand, typename Result>
std::vector<Result> results(const CompiledDefinition& compiled,
                            const std::vector<std::vector<Operand>>& stored,
                            std::vector<Result> result) {
    std::vector<const void*> operands;
    for (const auto& operand : stored) operands.push_back(operand.data());
    compiled.run(operands, std::array<void*, 1>{result.data()});
    return result;
}

template <typename To>
auto all_of(const std::vector<std::vector<float>>& values, To to) {
    std::vector<decltype(to(values.front()))> made;
    for (const auto& each : values) made.push_back(to(each));
    return made;
}

bool is_right(const Problem& it, const CompiledDefinition& compiled) {
    const std::vector<double>& values = it.exact.at("y").values;
    if (it.result == DType::s32) {
        const std::vector<std::int32_t> before(it.before.begin(), it.before.end());
        const std::vector<std::int32_t> exact(values.begin(), values.end());
        return results(compiled, all_of(it.values, bytes_of), before) == exact;
    }
    const std::vector<float> before(it.before.begin(), it.before.end());
    const std::vector<float> exact(values.begin(), values.end());
    if (it.result == DType::f32) return results(compiled, it.values, before) == exact;
    const std::vector<std::uint16_t> found =
        results(compiled, all_of(it.values, bfloat16_of), bfloat16_of(before));
    const auto is_equal = [](std::uint16_t one, float other) {
        const float value = std::bit_cast<float>(std::uint32_t(one) << 16);
        return value == other || (std::abs(other) > 256 && std::isfinite(value));
    };
    return std::equal(found.begin(), found.end(), exact.begin(), exact.end(), is_equal);
}

TEST_CASE("every way that is listed computes the statement") {
    Draw draw(20261125);
    unsigned forced = 0, several = 0, ended = 0, long_bytes = 0;
    for (unsigned round = 0; round < testing::cases(1000); ++round) {
        Problem it = drawn(draw);
        const Definition definition = definition_of(it);
        CAPTURE(round);
        CAPTURE(it.text);
        CAPTURE(it.end);
        const CompiledDefinition chosen(definition, it.arrays);
        const auto is_long = [](const auto& size) { return size.second > 256; };
        const auto& sizes = it.arrays.given;
        const bool has_long = std::any_of(sizes.begin(), sizes.end(), is_long);
        long_bytes += it.result == DType::s32 && has_long ? 1 : 0;
        ended += chosen.described({}).find("statements 1 and 2") == std::string::npos ? 0 : 1;
        REQUIRE(is_right(it, chosen));
        for (const Decision& decision : chosen.decisions().made(0)) {
            if (!decision.name.starts_with("product")) continue;
            several += decision.options.size() > 1 ? 1 : 0;
            for (const std::string& option : decision.options) {
                it.arrays.choices = {{decision.name, option}};
                const CompiledDefinition other(definition, it.arrays);
                CAPTURE(option);
                REQUIRE(other.decisions().made(0).size() >= 1);
                REQUIRE(is_right(it, other));
                ++forced;
            }
        }
    }
    CHECK(several > testing::cases(200));
    CHECK(ended > testing::cases(80));
    CHECK(long_bytes > testing::cases(20));
    MESSAGE(forced, " ways forced, ", ended, " products with ends");
}

}  // namespace
}  // namespace dlprim
