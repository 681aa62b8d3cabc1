// From text to definitions. What words mean is looked at only where the grammar needs it: a name
// with parentheses is called if it is a function's and read otherwise, and "name?(i)" is a read
// unless the name is a scalar of the definition, which can be a condition. check.h says whether
// what was parsed makes sense. Nesting and size are bounded, so that no text can exhaust the stack.
#pragma once

#include <string_view>
#include <vector>

#include "lang/definition.h"

namespace dlprim {

// All of these throw std::invalid_argument as refuse_at (lexer.h) says.

// "def name(float(N,C) x, ..) -> (y, ..) { statements }", any number of them.
std::vector<Definition> parse_definitions(std::string_view text);

// One statement alone.
Statement parse_statement(std::string_view text);

// One statement as a definition: its parameters are the tensors that it reads, in order of
// appearance, of no type and with sizes that no formula can name: dimensions that the same index
// alone goes along are equal. A scalar is read as "a()".
Definition parse_contraction(std::string_view text);

}  // namespace dlprim
