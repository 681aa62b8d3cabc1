// Convolution with one filter per channel. There is no sum over channels and so no matrix product:
// every pass is a handful of multiply-adds per element, bound by memory, with vectors along the
// channels (Google Highway). bfloat16 is widened, summed in float32 and rounded once.
#pragma once

#include <cstdint>

#include "brgemm/spec.h"
#include "jit/dtype.h"
#include "primitives/conv/conv_layout.h"
#include "primitives/conv/conv_shape.h"

namespace dlprim {

struct Depthwise {
    ConvShape shape;  // validated, is_depthwise()
    DType dtype = DType::f32;
    Format layout = Format::blocked;
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

// `scratch` is aligned to the cache line and as large as the function before says.
std::int64_t depthwise_data_scratch_bytes(const Depthwise& problem);
void depthwise_backward_data(const Depthwise& problem, const void* diff_dst, const void* weights,
                             void* diff_src, char* scratch);

struct DepthwiseWeights {
    const void* src = nullptr;
    const void* diff_dst = nullptr;
    DType to = DType::f32;         // of diff_weights: float32 or bfloat16
    void* diff_weights = nullptr;  // [blocks][R][S][block]
};

// The sum over images and pixels is in an order that does not depend on the number of threads.
std::int64_t depthwise_weights_scratch_bytes(const Depthwise& problem);
void depthwise_backward_weights(const Depthwise& problem, const DepthwiseWeights& tensors,
                                char* scratch);

}  // namespace dlprim
