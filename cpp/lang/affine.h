// Sums of indices times integers: what nearly every place of a tensor is once sizes are numbers. A
// place read from a tensor, a quotient and a product of two indices are none.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lang/expression.h"

namespace dlprim {

struct AffineTerm {
    std::int64_t factor = 1;
    std::string index = {};

    friend bool operator==(const AffineTerm&, const AffineTerm&) = default;
};

// Sum of indices times integers, each index once and none times zero, and a constant.
struct AffineSum {
    std::vector<AffineTerm> terms = {};
    std::int64_t constant = 0;

    friend bool operator==(const AffineSum&, const AffineSum&) = default;
};

// Names that stand for numbers.
using Constants = std::map<std::string, std::int64_t, std::less<>>;

// The terms are in order of appearance; names that are no constants are indices. Nothing where it
// is no such sum. Throws std::invalid_argument where a number does not fit 64 bits.
std::optional<AffineSum> affine_of(const Expression& expression, const Constants& constants);

// All that follow throw std::invalid_argument where the result does not fit 64 bits.
AffineSum scaled(AffineSum sum, std::int64_t factor);
AffineSum added(AffineSum sum, const AffineSum& other);

std::int64_t checked_sum(std::int64_t a, std::int64_t b);
std::int64_t checked_product(std::int64_t a, std::int64_t b);
// Rounded down; b is not 0.
std::int64_t floor_quotient(std::int64_t a, std::int64_t b);

}  // namespace dlprim
