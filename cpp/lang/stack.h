// Formulas are read, checked and compiled by functions that call themselves for every level of a
// tree, and the caller's thread may have a small stack.
#pragma once

#include <cstdint>
#include <string_view>

#include "lang/definition.h"

namespace dlprim {

// Throws std::invalid_argument, as refuse_at (lexer.h) says, where what is left of this thread's
// stack may not hold the calls for a tree of so many levels.
void require_stack(std::string_view text, std::int64_t position, std::int64_t levels);

// The same for the deepest tree of a statement.
void require_stack(std::string_view text, const Statement& statement);

}  // namespace dlprim
