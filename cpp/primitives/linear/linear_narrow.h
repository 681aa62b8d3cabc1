// The forward pass of a layer with one output channel (narrow_product.h) on the operands of
// linear_layout.h.
#pragma once

#include "primitives/linear/linear_contraction.h"

namespace dlprim {

struct NarrowForward {
    const void* src = nullptr;
    const void* weights = nullptr;  // the forward form
    const float* bias = nullptr;    // one value, or null
    void* dst = nullptr;
};

// Whether the pass is one: K is 1, in float32 or bfloat16.
bool is_narrow(const LinearProblem& problem);

// dst = src * weights^T + bias. The same bits for any number of threads.
void narrow_forward(const LinearProblem& problem, const NarrowForward& tensors);

}  // namespace dlprim
