// Convolution with one filter per channel. There is no sum over channels and so no matrix product:
// every pass is a handful of multiply-adds per element, bound by memory, with vectors along the
// channels (Google Highway), in a fixed nest. bfloat16 is widened, summed in float32 and rounded
// once. Weights are [blocks][R][S][block].
#pragma once

#include <cstdint>
#include <memory>

#include "primitives/conv/conv_pass.h"

namespace dlprim {

std::unique_ptr<ConvPass> depthwise_pass(const ConvSpec& spec, PassKind pass);

// The sum over images and pixels is in an order that does not depend on the number of threads.
// `scratch` is aligned to the cache line and as large as the first of the two says.
std::int64_t depthwise_weights_scratch_bytes(const ConvProblem& problem);
void depthwise_backward_weights(const ConvProblem& problem, const ConvTensors& tensors,
                                char* scratch);

}  // namespace dlprim
