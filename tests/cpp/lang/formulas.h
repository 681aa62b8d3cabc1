// What the tests of the language share: definitions from text, small arrays, and what was refused.
#pragma once

#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "lang/interpreter.h"
#include "lang/lexer.h"
#include "lang/parser.h"

namespace dlprim {

// The first definition, or a statement as one.
inline Definition definition_of(const std::string& text) {
    const bool is_statement = text.find("def ") == std::string::npos;
    return is_statement ? parse_contraction(text) : parse_definitions(text).front();
}

// Of one definition: "a=3 k=2 | b=3", statement by statement.
inline std::string extents_of(const std::string& text, const Shapes& shapes,
                              const Constants& given = {}) {
    const Definition definition = definition_of(text);
    std::string made;
    for (const auto& statement :
         ranges_of(definition, checked(definition), shapes, given).statements) {
        made += made.empty() ? "" : " |";
        for (const IndexRange& index : statement) {
            made += (made.empty() ? "" : " ") + index.name + (index.reduced ? "+" : "") + "=" +
                    std::to_string(index.extent);
        }
    }
    return made;
}

// The first line of the message.
inline std::string refusal_of(const std::function<void()>& body) {
    try {
        body();
    } catch (const std::invalid_argument& error) {
        const std::string message = error.what();
        return message.substr(0, message.find('\n'));
    }
    return "nothing was refused";
}

// Numbers that differ, none of them zero; whole ones from 0 up to `below` where it is given.
inline Array array_of(const Shape& shape, int below = 0) {
    Array made{.shape = shape};
    std::int64_t count = 1;
    for (const std::int64_t extent : shape) count *= extent;
    for (std::int64_t i = 0; i < count; ++i) {
        const auto digit = static_cast<int>((i * 7 + 3) % 11);
        made.values.push_back(below > 0 ? digit % below : 0.25 * (digit - 4) + 0.125);
    }
    return made;
}

// All arrays after a definition ran on these.
inline Arrays run(const std::string& text, Arrays arrays, const Constants& given = {}) {
    interpret(definition_of(text), arrays, given);
    return arrays;
}

// An element, zero outside.
inline double at(const Array& array, const Shape& place) {
    std::int64_t offset = 0;
    for (std::size_t i = 0; i < place.size(); ++i) {
        if (place[i] < 0 || place[i] >= array.shape[i]) return 0;
        offset = offset * array.shape[i] + place[i];
    }
    return array.values[static_cast<std::size_t>(offset)];
}

// That an array has this shape and these elements, written as a loop.
inline void check_array(const Array& found, const Shape& shape,
                        const std::function<double(const Shape&)>& expected) {
    REQUIRE(found.shape == shape);
    Shape place(shape.size(), 0);
    for (const double value : found.values) {
        CHECK(value == doctest::Approx(expected(place)));
        for (std::size_t i = shape.size(); i-- > 0;) {
            if (++place[i] < shape[i]) break;
            place[i] = 0;
        }
    }
}

inline double sum(std::int64_t count, const std::function<double(std::int64_t)>& term) {
    double made = 0;
    for (std::int64_t i = 0; i < count; ++i) made += term(i);
    return made;
}

}  // namespace dlprim
