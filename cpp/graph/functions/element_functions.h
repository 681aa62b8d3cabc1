// Elements by tables and by their bits.
#pragma once

#include "graph/functions/function_step.h"

namespace dlprim {

// Inputs: x of int64, float32 or float64 (or of codes of strings, which are int64); its keys in
// order, with what is no number last; their places, int64. Output: of each element the place of the
// key that it equals, or how many keys there are.
RunOfCall looked_up(const Network& network, const ArrayCall& call);

// Input: places, int64. Output (places' shape..., count) of float32: 1 at the place, 0 elsewhere.
RunOfCall one_hot_rows(const Network& network, const ArrayCall& call);

// Input: x of float32. Outputs: x in uint8, the scale and the zero point, of one element each: from
// the least to the greatest element and 0. Of zeros the scale is 0.
RunOfCall in_bytes(const Network& network, const ArrayCall& call);

// MurmurHash3 (x86, 32 bits) of each element's bytes, 4 or 8, from `seed`.
RunOfCall hashes(const Network& network, const ArrayCall& call);

}  // namespace dlprim
