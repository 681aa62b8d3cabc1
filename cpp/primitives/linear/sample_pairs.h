// Samples side by side in pairs, as a bfloat16 sum over the minibatch multiplies them (decision 8
// has the same for pixels). Each block of channels becomes [ceil(N / 2)][block][2].
#pragma once

#include "primitives/tensor/channel_blocks.h"
#include "primitives/tensor/layout.h"

namespace dlprim {

// `tensor` is one image of N pixels. An odd last sample is paired with zeros; columns behind the
// last channel are left alone.
void pack_sample_pairs(const Activations& tensor, Format layout, const void* samples, void* pairs);

}  // namespace dlprim
