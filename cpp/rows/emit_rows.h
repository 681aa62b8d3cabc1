// From plan to machine code. The emitter decides nothing: every number in the code it writes comes
// from the plan.
#pragma once

#include <cstdint>
#include <vector>

#include "rows/row_plan.h"

namespace dlprim {

// Position-independent code of type void(const RowArgs*), System V calling convention.
std::vector<std::uint8_t> emit_rows(const RowPlan& plan);

}  // namespace dlprim
