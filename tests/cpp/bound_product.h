// The product of matrices in a statement on dense arrays, for tests of how it is mapped.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "lang/check.h"
#include "lang/parser.h"
#include "primitives/formulas/statement_binding.h"
#include "primitives/mapping/strided_product.h"

namespace dlprim::testing {

inline BoundStatement bound_of(const std::string& text, const std::vector<Shape>& shapes,
                               const Constants& given, DType dtype) {
    const Definition definition = parse_contraction(text);
    const Symbols symbols = checked(definition);
    Shapes named;
    std::vector<PlacedTensor> tensors;
    for (std::size_t i = 0; i < shapes.size(); ++i) {
        const std::string& name = definition.parameters.at(i).name;
        named[name] = shapes[i];
        tensors.push_back({dense_view(name, dtype, shapes[i]), {}});
    }
    const Ranges ranges = ranges_of(definition, symbols, named, given);
    const std::string& result = definition.returns.front();
    tensors.push_back({dense_view(result, dtype, ranges.shapes.at(result)), {}});
    const BoundDefinition whole{definition, symbols, ranges,
                                [&](const std::string& name) -> const PlacedTensor& {
                                    for (const PlacedTensor& it : tensors) {
                                        if (it.view.name == name) return it;
                                    }
                                    return tensors.front();
                                },
                                [](std::int64_t) { return ArrayPlace{}; }};
    return bound(whole, 0).statement;
}

inline StridedProduct product_of(const std::string& text, const std::vector<Shape>& shapes,
                                 const Constants& given, DType dtype) {
    const auto product = product_in(bound_of(text, shapes, given, dtype));
    REQUIRE(product.has_value());
    return *product;
}

}  // namespace dlprim::testing
