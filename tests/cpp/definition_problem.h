// A definition with random arrays for its parameters and what the interpreter makes of them: to be
// compiled in one way or another and compared.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "draw.h"
#include "lang/interpreter.h"
#include "lang/parser.h"
#include "primitives/formulas/compiled_definition.h"

namespace dlprim::testing {

struct DefinitionProblem {
    Definition definition;
    CompiledDefinition::Arrays arrays = {};
    Arrays exact = {};
    std::vector<std::vector<float>> values = {};

    // Numbers are eighths from -most / 8 to most / 8.
    DefinitionProblem(Draw& draw, const std::string& text, const Constants& extents, int most)
        : definition(parse_definitions(text).front()) {
        for (const Parameter& parameter : definition.parameters) {
            Shape shape;
            for (const Expression& it : parameter.dimensions) shape.push_back(extents.at(it.name));
            arrays.parameters.push_back(dense_view(parameter.name, DType::f32, shape));
            std::vector<float>& drawn = values.emplace_back();
            for (std::int64_t i = 0; i < arrays.parameters.back().elements(); ++i) {
                drawn.push_back(static_cast<float>(draw.from(-most, most)) / 8);
            }
            exact[parameter.name] = {shape, {drawn.begin(), drawn.end()}};
        }
        interpret(definition, exact);
    }

    std::vector<std::vector<float>> results_of(const CompiledDefinition& compiled) const {
        std::vector<const void*> parameters;
        for (const auto& it : values) parameters.push_back(it.data());
        std::vector<std::vector<float>> results;
        std::vector<void*> written;
        for (const TensorView& it : compiled.results()) {
            results.emplace_back(static_cast<std::size_t>(it.elements()), -7.0F);
        }
        for (auto& it : results) written.push_back(it.data());
        compiled.run(parameters, written);
        return results;
    }

    // The largest, in parts of one more than the exact value; 1 where something is no number.
    double error_of(const CompiledDefinition& compiled) const {
        const auto results = results_of(compiled);
        double largest = 0;
        for (std::size_t i = 0; i < results.size(); ++i) {
            const auto& wanted = exact.at(compiled.results()[i].name).values;
            if (results[i].size() != wanted.size()) return 1;
            for (std::size_t k = 0; k < wanted.size(); ++k) {
                const double error =
                    std::abs(results[i][k] - wanted[k]) / (1 + std::abs(wanted[k]));
                largest = std::isnan(error) ? 1 : std::max(largest, error);
            }
        }
        return largest;
    }
};

}  // namespace dlprim::testing
