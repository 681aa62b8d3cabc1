// Rows and matrices as wholes.
#pragma once

#include "graph/functions/function_step.h"

namespace dlprim {

// Products of matrices of int32 or int64, modulo 2^32 or 2^64: (B, m, k) by (B, k, n).
RunOfCall whole_products(const Network& network, const ArrayCall& call);

// Square matrices in the last two axes, float32 or float64: eliminated in float64, no numbers where
// there is no inverse.
RunOfCall inverses(const Network& network, const ArrayCall& call);

// Inputs: tokens (N, S) of int32 or int64, scores (N, V) of float32. Output: the scores, minus
// infinity for what would end a run of `size` tokens that the row already has. The step throws
// std::out_of_range where such a token has no score.
RunOfCall other_ngrams(const Network& network, const ArrayCall& call);

}  // namespace dlprim
