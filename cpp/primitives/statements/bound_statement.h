// A statement of which all is known: how far every index goes, and where the elements of every
// operand are. Every place is a sum of indices times numbers, so an operand is an offset and a
// distance for each index, whatever it looked like as text: a filter that slides over an image, a
// transposed matrix and a diagonal are the same to what runs it. Places outside an array, and
// places that are read from a tensor, are steps of their own in front of the statement.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "jit/dtype.h"
#include "lang/definition.h"
#include "lang/ranges.h"

namespace dlprim {

// Elements: from the first one of the array to the one where all indices are 0, and from there
// along each index, as BoundStatement::indices has them. 0 for an index that it does not have.
struct BoundOperand {
    DType dtype = DType::f32;
    std::int64_t offset = 0;
    std::vector<std::int64_t> strides = {};

    bool operator==(const BoundOperand&) const = default;
};

struct BoundStatement {
    std::vector<IndexRange> indices = {};
    BoundOperand result = {};
    std::vector<BoundOperand> operands = {};
    Reduction reduction = Reduction::none;
    bool initializes = true;
    bool leaves_caches = false;  // the result is a part of what is too large to be read there
    // A read has no places, its `number` says which operand it is; a name is an index, by its name.
    Expression value = {};
};

// A statement behind another one, and which of its operands are the array that that one writes.
struct NextStatement {
    BoundStatement statement = {};
    std::vector<bool> is_result = {};
};

// Of a statement's operand, by its place among them.
inline Expression read_of(std::int64_t operand) {
    return {.kind = Expression::Kind::read, .number = static_cast<double>(operand)};
}

// Without indices of one value, with the result's distances above 0, and with one index for two
// wherever the outer one goes on where the inner one ends.
void simplify(BoundStatement& statement);

void remove_index(BoundStatement& statement, std::size_t index);
// The last one; without a distance in any operand.
std::size_t add_index(BoundStatement& statement, IndexRange index);

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
