// A linear (fully connected) layer on plain row-major tensors: dst = activation(src * weights^T +
// bias). Each pass is a matrix product; only the forward pass has to reorder an operand, because
// the kernel wants consecutive output channels side by side.
#pragma once

#include <cstdint>

#include "brgemm/spec.h"

namespace dlprim {

struct LinearShape {
    std::int64_t N = 0;  // minibatch
    std::int64_t C = 0;  // input channels
    std::int64_t K = 0;  // output channels
};

struct LinearForward {
    const float* src = nullptr;      // (N, C)
    const float* weights = nullptr;  // (K, C)
    const float* bias = nullptr;     // (K), or null
    float* dst = nullptr;            // (N, K)
    Activation activation = Activation::none;
};

struct LinearBackward {
    const float* diff_dst = nullptr;  // (N, K)
    const float* src = nullptr;       // (N, C)
    const float* weights = nullptr;   // (K, C)
    const float* dst = nullptr;       // (N, K), result of the forward pass; read for an activation
    Activation activation = Activation::none;
    float* diff_src = nullptr;      // (N, C)
    float* diff_weights = nullptr;  // (K, C)
    float* diff_bias = nullptr;     // (K)
};

// Any extent may be 0. Operands must not overlap results.
void linear_forward(const LinearShape& shape, const LinearForward& tensors);
void linear_backward(const LinearShape& shape, const LinearBackward& tensors);

}  // namespace dlprim
