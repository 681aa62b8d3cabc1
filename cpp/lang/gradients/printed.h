// Expressions and statements as text that parses to the same: a gradient is written down before it
// is compiled, so that a person can read what runs, and messages have a line to quote.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lang/affine.h"
#include "lang/definition.h"

namespace dlprim {

std::string text_of(const Expression& expression);
std::string text_of(const Statement& statement);
std::string text_of(const Definition& definition);

// Negative terms behind the others.
Expression expression_of(const AffineSum& sum);

Expression number_of(std::int64_t number);
Expression named(const std::string& name);
Expression read_of(const std::string& tensor, const std::vector<std::string>& indices);
// Where a statement writes, of another tensor.
Expression placed_at(const Statement& statement, const std::string& tensor);

}  // namespace dlprim
