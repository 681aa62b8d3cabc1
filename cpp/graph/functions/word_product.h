// Products of few rows of bytes by weights that stay, on CPUs that do not multiply bytes.
#pragma once

#include "graph/functions/function_step.h"

namespace dlprim {

// Inputs: x (N, K) of uint8; weights of int16 in blocks of 64 columns and pairs along k, zeros
// behind the last of both: (ceil(M / 64), ceil(K / 2), 64, 2); a scale of float32 for each column.
// Output (N, M) of float32: the sums of (x - zero) * weights, exact, times the scale.
RunOfCall word_product(const Network& network, const ArrayCall& call);

}  // namespace dlprim
