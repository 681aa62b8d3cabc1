// Reads at places that are read from tensors, x(index(i),j), as statements of their own: each
// copies what it reads to a temporary that has its indices, and the statement around it reads that.
// So a table that is looked up, summed and multiplied is one way of reading and else nothing new.
#pragma once

#include "lang/definition.h"

namespace dlprim {

// Whether a read has a place that is read from a tensor.
bool gathers(const Expression& read);

// The same definition, in which only whole right sides gather: of copies, and of sums of rows.
// Throws std::invalid_argument where a place is read at a place that is read.
Definition with_gathers_apart(const Definition& definition);

}  // namespace dlprim
