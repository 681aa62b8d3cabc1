// What the tests of gradients share: arrays by chance, and gradients against differences.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "lang/formulas.h"
#include "lang/gradients/gradient.h"

namespace dlprim {

inline Array random_array(const Shape& shape, std::mt19937& random, double low = -1,
                          double high = 1) {
    Array made{.shape = shape};
    std::uniform_real_distribution<double> uniform(low, high);
    std::int64_t count = 1;
    for (const std::int64_t extent : shape) count *= extent;
    for (std::int64_t i = 0; i < count; ++i) made.values.push_back(uniform(random));
    return made;
}

// What is added up over all results, each element times a number of its own.
inline double loss(const Definition& definition, Arrays arrays, const Arrays& weights,
                   const Constants& given) {
    interpret(definition, arrays, given);
    double made = 0;
    for (const auto& [name, weight] : weights) {
        const Array& result = arrays.at(name);
        for (std::size_t i = 0; i < weight.values.size(); ++i) {
            made += weight.values[i] * result.values[i];
        }
    }
    return made;
}

// Those that the definition has.
inline Constants named_in(const Definition& definition, const Constants& given) {
    Constants made;
    for (const Statement& statement : definition.statements) {
        for (const std::string& index : indices_of(statement, checked(definition))) {
            if (given.contains(index)) made[index] = given.at(index);
        }
    }
    return made;
}

// That a gradient is what differences say, by each element of one array.
inline void check_gradient(const std::string& text, const Arrays& arrays,
                           const std::string& parameter, const Constants& given = {}) {
    const Definition definition = definition_of(text);
    const Definition gradient = gradient_of(definition, parameter);
    CAPTURE(gradient.text);
    std::mt19937 random(1);
    Arrays results = arrays, weights, inputs = arrays;
    interpret(definition, results, given);
    for (const std::string& name : definition.returns) {
        if (checked(definition).tensors.at(name).type != ValueType::real) continue;
        weights[name] = random_array(results.at(name).shape, random);
        inputs["d_" + name] = weights.at(name);
    }
    interpret(gradient, inputs, named_in(gradient, given));
    const Array found = inputs.at(gradient.returns.front());
    REQUIRE(found.shape == arrays.at(parameter).shape);
    for (std::size_t i = 0; i < found.values.size(); ++i) {
        constexpr double kStep = 1e-5;
        Arrays up = arrays, down = arrays;
        up.at(parameter).values[i] += kStep;
        down.at(parameter).values[i] -= kStep;
        const double expected =
            (loss(definition, up, weights, given) - loss(definition, down, weights, given)) /
            (2 * kStep);
        CAPTURE(i);
        CHECK(found.values[i] == doctest::Approx(expected).epsilon(1e-5).scale(1));
    }
}

// By every array.
inline void check_gradients(const std::string& text,
                            const std::vector<std::pair<std::string, Shape>>& of,
                            const Constants& given = {}) {
    std::mt19937 random(7);
    Arrays arrays;
    for (const auto& [name, shape] : of) arrays[name] = random_array(shape, random);
    for (const auto& [name, shape] : of) check_gradient(text, arrays, name, given);
}

}  // namespace dlprim
