// A product of several operands is as many products of two, and in which order decides how much
// there is to multiply: of all orders the one with the fewest operations is taken. What an index
// that only one operand has is summed over is summed first.
#pragma once

#include <vector>

#include "primitives/statements/bound_statement.h"

namespace dlprim {

// One of the statements that together are another one. Operands from the number of that one's
// operands on are the results of the steps, in their order; the last step's result is that one's.
struct ChainStep {
    BoundStatement statement = {};
    std::vector<int> operands = {};
    std::int64_t elements = 0;  // of a result that is an operand of a later step, dense
};

// The statement itself where it is no sum of products of more than two operands and each reduced
// index has an operand besides.
std::vector<ChainStep> chain_of(const BoundStatement& statement);

}  // namespace dlprim
