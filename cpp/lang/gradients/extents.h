// How far the indices of a statement go, as formulas of sizes: what ranges.h finds once shapes are
// numbers. A gradient needs it before: its indices have to go as far as they went, and it has to
// say so wherever its own reads would not.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lang/affine.h"
#include "lang/definition.h"

namespace dlprim {

// A sum of sizes; its terms are sizes or formulas of them in parentheses. Nothing: only the caller
// says it.
using Extent = std::optional<AffineSum>;

struct NamedShapes {
    std::set<std::string, std::less<>> sizes = {};
    std::map<std::string, std::vector<Extent>, std::less<>> tensors = {};

    bool is_index(const std::string& name) const {
        return !sizes.contains(name) && !tensors.contains(name);
    }
};

using Extents = std::map<std::string, Extent, std::less<>>;

Expression formula_of(const AffineSum& extent);
AffineSum sum_of(const Expression& extent);
AffineSum quotient_of(const AffineSum& sum, std::int64_t step);  // rounded down

bool are_equal(const Extent& a, const Extent& b);  // false where one is not known

// Of all indices. `is_sure` leaves out what is only right if the statement is known to be.
Extents extents_of(const Statement& statement, const NamedShapes& shapes, bool is_sure);

// Of the result, for these extents of its indices.
std::vector<Extent> shape_of(const Statement& statement, const Extents& extents);

// In order of appearance, those of the result in front.
std::vector<std::string> indices_of(const Statement& statement, const NamedShapes& shapes);

}  // namespace dlprim
