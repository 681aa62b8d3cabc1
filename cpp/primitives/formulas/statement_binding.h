// From the names of a statement to arrays: every read becomes an operand of which offset and
// distances are known. What a read may take from outside its array is copied first, with zeros
// around it; those copies are steps in front of the statement.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "lang/affine.h"
#include "lang/check.h"
#include "lang/definition.h"
#include "lang/ranges.h"
#include "primitives/formulas/step_group.h"
#include "primitives/statements/bound_statement.h"

namespace dlprim {

// An array; strides in elements.
struct TensorView {
    std::string name = {};
    DType dtype = DType::f32;
    Shape shape = {};
    std::vector<std::int64_t> strides = {};
};

TensorView dense_view(std::string name, DType dtype, const Shape& shape);

struct PlacedTensor {
    TensorView view = {};
    Place place = {};
};

struct BoundDefinition {
    const Definition& definition;
    const Symbols& symbols;
    const Ranges& ranges;
    std::function<const PlacedTensor&(const std::string& name)> tensor;
    std::function<Place(std::int64_t bytes)> scratch;
};

struct StatementBinding {
    int number = 0;
    BoundStatement statement = {};
    std::vector<Place> operands = {};
    Place result = {};
    std::vector<Step> copies = {};  // that come first
};

// Throws std::invalid_argument for what cannot be bound, as a sentence.
StatementBinding bound(const BoundDefinition& definition, int number);

}  // namespace dlprim
