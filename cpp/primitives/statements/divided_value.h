// What reads more arrays than a program has operands is computed in parts: which ones.
#pragma once

#include <cstddef>
#include <set>

#include "lang/expression.h"
#include "primitives/statements/row_planner.h"

namespace dlprim {

// The numbers of operands.
std::set<std::size_t> operands_read(const Expression& value);

// Of a call.
Expression& operand_that_reads_most(Expression& value);

// Without the operands that the value does not read.
void keep_operands_read(PlacedStatement& statement);

}  // namespace dlprim
