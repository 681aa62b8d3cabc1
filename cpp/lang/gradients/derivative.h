// What falls of the gradient of an expression on each of the elements that it reads: derivatives
// are written in the language itself, as formulas of the operands.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lang/expression.h"

namespace dlprim {

struct GradientShare {
    Expression read = {};   // of an element, or the name of a scalar
    Expression value = {};  // of all places of the expression that read it
};

// `is_sought` says which reads and names have a gradient; `gradient` is the one of the expression.
// Of equal operands a maximum gives all to the first, a number is never what was chosen. Throws
// std::invalid_argument as refuse_at (lexer.h) says, of `text`, where a function has no derivative.
std::vector<GradientShare> gradient_shares(const Expression& expression, const Expression& gradient,
                                           const std::function<bool(const Expression&)>& is_sought,
                                           const std::string& text);

// Of integers, where both are numbers.
Expression folded(Expression expression);

}  // namespace dlprim
