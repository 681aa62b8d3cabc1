// A statement with arrays whose elements are all that its places are, and what plain loops in
// double precision make of it.
#pragma once

#include <cmath>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "draw.h"
#include "guarded_elements.h"
#include "primitives/statements/bound_statement.h"

namespace dlprim::testing {

inline Expression number(double value) { return {.number = value}; }
inline Expression whole(double value) { return {.number = value, .is_integer = true}; }
inline Expression read(std::int64_t operand) {
    return {.kind = Expression::Kind::read, .number = static_cast<double>(operand)};
}
inline Expression index(const std::string& name) {
    return {.kind = Expression::Kind::name, .is_integer = true, .name = name};
}
inline Expression call(const std::string& name, std::vector<Expression> operands) {
    return {.kind = Expression::Kind::call, .name = name, .operands = std::move(operands)};
}

// Values of indices, by their place.
using Place = std::vector<std::int64_t>;

class StatementProblem {
public:
    explicit StatementProblem(BoundStatement statement) : it(std::move(statement)) {}

    BoundStatement it;
    std::vector<Elements> operands;
    std::vector<Elements> result;  // one, or none before allocate()

    // Arrays flush with pages that fault.
    void allocate(Draw& draw, Fence fence);
    double operand_at(std::size_t which, const Place& place) const;
    void run() const;
    // Runs it: how many elements of the result are wrong, also where there should be none.
    int wrong_elements();

    static std::int64_t element(const BoundOperand& operand, const Place& place) {
        return std::inner_product(place.begin(), place.end(), operand.strides.begin(),
                                  operand.offset);
    }

    // body() for all values of the indices that are reduced, or of all others.
    template <class Body>
    void for_places(bool reduced, Place& place, const Body& body, std::size_t first = 0) const {
        while (first < it.indices.size() && it.indices[first].reduced != reduced) ++first;
        if (first == it.indices.size()) return body();
        for (std::int64_t i = 0; i < it.indices[first].extent; ++i) {
            place[first] = i;
            for_places(reduced, place, body, first + 1);
        }
        place[first] = 0;
    }

private:
    // Moves the offset to where all places are in the array; how many elements that has.
    std::int64_t fit(BoundOperand& operand) const;
};

}  // namespace dlprim::testing
