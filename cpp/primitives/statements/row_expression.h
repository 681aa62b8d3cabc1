// The right side of a statement as operations of the row engine. The names of functions are those
// that users write; arithmetic is float32, but what is made of indices and whole numbers alone is
// divided as integers are, downwards.
#pragma once

#include <vector>

#include "lang/definition.h"
#include "lang/expression.h"
#include "rows/row_builder.h"

namespace dlprim {

// `reads` has a value for each operand; a read of an integer says is_integer. Throws
// std::invalid_argument where the row engine has no such function.
RowValue row_value(RowBuilder& row, const Expression& value, const std::vector<RowValue>& reads);

// Whether it is made of indices and whole numbers alone, a read as it says.
bool is_integer_value(const Expression& value);

// What stands and what comes; a NaN of either is the result.
RowValue joined(Reduction reduction, RowValue before, RowValue next);
// Along the row.
RowValue joined_row(Reduction reduction, RowValue x);
// Of nothing.
float identity_of(Reduction reduction);
// As the function in an expression that joined() is.
const char* name_of(Reduction reduction);

}  // namespace dlprim
