// Registers for a plan whose steps are written: how many vectors are under way together, where each
// role begins, and which single values find a register. This is the one place that counts them.
#pragma once

#include "rows/row_plan.h"

namespace dlprim {

// What the steps of a plan hold at a time, at most.
struct RowDemand {
    int vectors = 0;        // values of one vector
    int columns = 0;        // values of a column, through all rows of a strip
    int singles = 0;        // single values; in the steps each has its number as a register
    bool operands = false;  // whether operands are read where they lie
};

// Sets `unroll`, `takes_turns`, the registers and the vectors on the stack, and gives single values
// their places. False, and nothing set but what would be needed, where registers are too few.
bool assign_registers(RowPlan& plan, const RowDemand& demand);

// Of a plan that got none: how many values of one vector may be in registers. Throws
// std::invalid_argument where that is too few.
int vectors_that_fit(const RowPlan& plan);

}  // namespace dlprim
