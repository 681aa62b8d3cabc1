// Reads at places that are read from tensors, x(index(i),j), as statements of their own: each
// copies what it reads to a temporary that has its indices, and the statement around it reads that.
// So a table that is looked up, summed and multiplied is one way of reading and else nothing new.
#pragma once

#include "lang/check.h"
#include "lang/definition.h"
#include "lang/ranges.h"

namespace dlprim {

// Whether a read has a place that is read from a tensor.
bool gathers(const Expression& read);

// The same definition, in which only whole right sides gather: of copies, and of sums of rows.
// Copies go as far as the statements around them; a scalar at a place is a read of it. Throws
// std::invalid_argument where a place is read at a place that is read.
Definition with_gathers_apart(const Definition& definition, const Symbols& symbols,
                              const Ranges& ranges);

}  // namespace dlprim
