// Layers whose operands are looked at while they run: losses of classes that targets name, and
// elements that are dropped by numbers counted from a seed.
#pragma once

#include "graph/functions/function_step.h"

namespace dlprim {

// Inputs: logits (..., K) of float32 or bfloat16; targets (...) of int64; weights of the classes,
// K of float32, or none. Outputs: the mean or the sum, one element of float32, or with `rows` a
// loss for each target; the gradient of their sum, like logits, or none. Numbers `ignored`,
// `smoothing`, `averages`, `rows`. A run throws std::out_of_range for a target that is no class.
RunOfCall cross_entropies(const Network& network, const ArrayCall& call);

// Inputs: x of float32 or bfloat16; a seed and an offset, one element of int64 each, of which all
// bits count. Output: like x, see Dropout. Numbers `threshold`, `scale`.
RunOfCall dropped(const Network& network, const ArrayCall& call);

}  // namespace dlprim
