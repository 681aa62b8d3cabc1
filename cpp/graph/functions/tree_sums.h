// Ensembles of trees: of each row, what the leaves at the ends of its paths give to each output.
#pragma once

#include <cstdint>

#include "graph/functions/function_step.h"

namespace dlprim {

// A comparison "at most the split", or a leaf, whose ends are its own place and whose split is no
// number. As an array of int32, a row for each node.
template <class T>
struct TreeNode {
    T split;
    std::int32_t feature;  // the highest bit: what is no number goes to the true end
    std::int32_t ends[2];  // false, true
};

// Inputs: x (rows, features) of float32 or float64; nodes as above; roots (trees,); starts
// (nodes + 1,) of int32, between which a node's outputs (int32) and numbers (of x's type) lie.
// Outputs: the aggregates (rows, outputs), and, if there are two, 1 where any leaf gave a number.
// aggregate: 0 for the sum, 1 for the least, 2 for the greatest number. Whoever makes the call has
// checked places, features and outputs.
RunOfCall tree_sums(const Network& network, const ArrayCall& call);

}  // namespace dlprim
