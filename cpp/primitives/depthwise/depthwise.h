// Convolution with one filter per channel. There is no sum over channels and so no matrix product:
// every pass is a handful of multiply-adds per element, bound by memory, with vectors along the
// channels (Google Highway). bfloat16 is widened, summed in float32 and rounded once.
#pragma once

#include <cstdint>

#include "primitives/conv/conv_pass.h"

namespace dlprim {

// Tensors in the layout of conv_layout.h: src, dst, diff_src, diff_dst blocked or channels-last,
// weights [blocks][R][S][block], all of the problem's type, but diff_weights float32 or bfloat16.
// The shape is_depthwise().
void depthwise_forward(const ConvProblem& problem, const ConvTensors& tensors, bool relu);

// `scratch` is aligned to the cache line and as large as the function before says.
std::int64_t depthwise_data_scratch_bytes(const ConvProblem& problem);
void depthwise_backward_data(const ConvProblem& problem, const ConvTensors& tensors, char* scratch);

// The sum over images and pixels is in an order that does not depend on the number of threads.
std::int64_t depthwise_weights_scratch_bytes(const ConvProblem& problem);
void depthwise_backward_weights(const ConvProblem& problem, const ConvTensors& tensors,
                                char* scratch);

}  // namespace dlprim
