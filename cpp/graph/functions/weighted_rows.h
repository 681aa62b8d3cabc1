// Sums of rows that lie at computed places between pixels: images read wherever a grid says.
#pragma once

#include "graph/functions/function_step.h"

namespace dlprim {

// Inputs: x (N, extents.., C), channels behind pixels, and for one axis of pixels after the other
// `taps` pairs of places (N, P, 1), cut towards zero, and weights alike. Output (N, P, C): of each
// place the sum over a tap of every axis of x there times the product of their weights; what lies
// outside adds nothing. All are float32, or all float64.
RunOfCall weighted_rows(const Network& network, const ArrayCall& call);

}  // namespace dlprim
