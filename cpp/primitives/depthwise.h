// Convolution with one filter per channel. There is no sum over channels and so no matrix product:
// every pass is a handful of multiply-adds per element, bound by memory, with vectors along the
// channels (Google Highway). bfloat16 is widened, summed in float32 and rounded once.
#pragma once

#include <cstdint>

#include "brgemm/dtype.h"
#include "brgemm/spec.h"
#include "primitives/conv_layout.h"
#include "primitives/conv_shape.h"

namespace dlprim {

struct Depthwise {
    ConvShape shape;  // validated, is_depthwise()
    DType dtype = DType::f32;
    Layout layout = Layout::blocked;
};

// Tensors in the layout of conv_layout.h: src, dst, diff_src, diff_dst blocked or channels-last,
// weights [blocks][R][S][block], all of `dtype`.
struct DepthwiseForward {
    const void* src = nullptr;
    const void* weights = nullptr;
    const float* bias = nullptr;     // C values, or null
    const void* residual = nullptr;  // as dst, or null; added before the activation
    bool relu = false;
    void* dst = nullptr;
};

void depthwise_forward(const Depthwise& problem, const DepthwiseForward& tensors);
void depthwise_backward_data(const Depthwise& problem, const void* diff_dst, const void* weights,
                             void* diff_src);
// diff_weights [blocks][R][S][block] of type `to` (float32 or bfloat16). The sum over images and
// pixels is in an order that does not depend on the number of threads.
void depthwise_backward_weights(const Depthwise& problem, const void* src, const void* diff_dst,
                                DType to, void* diff_weights);

}  // namespace dlprim
