// Statements that mean the same as another one, with fewer indices and with distances that go
// upwards: what runs a statement looks for few long loops.
#pragma once

#include <cstddef>
#include <cstdint>

#include "primitives/formulas/bound_statement.h"

namespace dlprim {

// Without indices of one value, with the result's distances above 0, and with one index for two
// wherever the outer one goes on where the inner one ends.
void simplify(BoundStatement& statement);

void remove_index(BoundStatement& statement, std::size_t index);
// The last one; without a distance in any operand.
std::size_t add_index(BoundStatement& statement, BoundIndex index);

// The values of an index that begin at `first`, so many.
BoundStatement restricted(BoundStatement statement, std::size_t index, std::int64_t first,
                          std::int64_t count);
// As two: `part` values of it, and how often these are, which becomes the last index.
BoundStatement cut(BoundStatement statement, std::size_t index, std::int64_t part);

// Of all indices that are reduced, or of all others.
std::int64_t extent_of(const BoundStatement& statement, bool reduced);
// Instructions, about.
std::int64_t length_of(const Expression& value);

}  // namespace dlprim
