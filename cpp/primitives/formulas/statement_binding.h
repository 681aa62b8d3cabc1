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
#include "primitives/formulas/gather.h"
#include "primitives/formulas/step_group.h"
#include "primitives/statements/bound_statement.h"
#include "primitives/tensor/tensor_view.h"

namespace dlprim {

struct PlacedTensor {
    TensorView view = {};
    ArrayPlace place = {};
};

struct BoundDefinition {
    const Definition& definition;
    const Symbols& symbols;
    const Ranges& ranges;
    std::function<const PlacedTensor&(const std::string& name)> tensor;
    std::function<ArrayPlace(std::int64_t bytes)> scratch;
};

struct StatementBinding {
    int number = 0;
    BoundStatement statement = {};
    std::vector<ArrayPlace> operands = {};
    ArrayPlace result = {};
    std::vector<Step> copies = {};             // that come first
    std::vector<StatementBinding> next = {};   // those behind that are its end
    std::vector<StatementBinding> fused = {};  // those behind that are one program with it
    bool is_stored = true;  // else nothing reads the result but what is one program with it
    std::vector<GatheredPlace> places = {};  // of a statement that gathers, for operands from 1 on
};

// Throws std::invalid_argument for what cannot be bound, as a sentence.
StatementBinding bound(const BoundDefinition& definition, int number);

}  // namespace dlprim
