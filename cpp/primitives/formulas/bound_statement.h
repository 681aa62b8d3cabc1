// A statement of which all is known: how far every index goes, and where the elements of every
// operand are. Every place is a sum of indices times numbers, so an operand is an offset and a
// distance for each index, whatever it looked like as text: a filter that slides over an image, a
// transposed matrix and a diagonal are the same to what runs it. Places outside an array, and
// places that are read from a tensor, are steps of their own in front of the statement.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "jit/dtype.h"
#include "lang/definition.h"

namespace dlprim {

struct BoundIndex {
    std::string name = {};
    std::int64_t extent = 0;
    bool reduced = false;
};

// Elements: from the first one of the array to the one where all indices are 0, and from there
// along each index, as BoundStatement::indices has them. 0 for an index that it does not have.
struct BoundOperand {
    DType dtype = DType::f32;
    std::int64_t offset = 0;
    std::vector<std::int64_t> strides = {};
};

struct BoundStatement {
    std::vector<BoundIndex> indices = {};
    BoundOperand result = {};
    std::vector<BoundOperand> operands = {};
    Reduction reduction = Reduction::none;
    bool initializes = true;
    // A read has no places, its `number` says which operand it is; a name is an index, by its name.
    Expression value = {};
};

}  // namespace dlprim
