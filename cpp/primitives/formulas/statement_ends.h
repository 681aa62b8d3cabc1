// Statements behind a product that become its end: what the kernel does before it stores a sum.
#pragma once

#include <vector>

#include "primitives/formulas/statement_binding.h"
#include "primitives/formulas/step_group.h"

namespace dlprim {

struct BoundProduct;

// The same statements, those that are an end inside the product's binding: as many as the cheapest
// way to compute it takes.
std::vector<StatementBinding> with_ends(std::vector<StatementBinding> bindings);

// Gives them to the product, of which the bias becomes the last operand.
void add_end(const StatementBinding& binding, BoundProduct& product, Step& step);

}  // namespace dlprim
