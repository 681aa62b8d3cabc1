// Whether statements with common indices go through them in pieces, and how large these are: so
// that what is used several times stays in a core's second cache between its uses. Arithmetic on
// extents and bytes alone.
#pragma once

#include <vector>

#include "jit/machine.h"
#include "lang/fusion.h"
#include "primitives/formulas/statement_binding.h"
#include "primitives/formulas/step_group.h"

namespace dlprim {

// From the outside in; of the last one the end is its extent, of which the step may leave a rest.
// None where pieces do not pay. `bindings` are the group's statements with their whole arrays.
// With a `size` other than 1 pieces are made whether that pays or not, so many times as large.
std::vector<StepGroup::Loop> piece_loops(const StatementGroup& group,
                                         const std::vector<StatementBinding>& bindings,
                                         const Machine& machine, double size = 1);

}  // namespace dlprim
