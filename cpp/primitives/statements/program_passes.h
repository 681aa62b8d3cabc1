// What the passes of a program over its rows ask for: what sums hold up, and what is stored before
// the last of them.
#pragma once

#include <cstddef>
#include <vector>

#include "rows/row_spec.h"

namespace dlprim {

// Of sums that are made in one pass, as many as there are of them at most.
int most_sums(const RowSpec& spec);

// Passes in front of the last sum.
int waits_for_sums(const RowSpec& spec);

// Tensors, by their numbers as operands, that are stored in a pass before the last one.
std::vector<std::size_t> stored_early(const RowSpec& spec);

}  // namespace dlprim
