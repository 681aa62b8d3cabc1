// The forward pass of a layer with one output channel: a matrix times a vector. As a kernel call it
// would use one lane of every vector; here vectors run along the input channels of a sample, and
// what is read of src is all that it costs (Google Highway, compiled per vector width as
// per_isa.h describes).
#pragma once

#include <cstdint>

#include "primitives/linear/linear_contraction.h"

namespace dlprim {

// Of the operands of linear_layout.h.
struct NarrowProduct {
    const void* src = nullptr;
    const void* weights = nullptr;  // the forward form
    const float* bias = nullptr;    // one value, or null
    void* dst = nullptr;
};

// Whether the pass is one: K is 1, in float32 or bfloat16.
bool is_narrow(const LinearProblem& problem);

// Floats of scratch: the weights in order, widened.
std::int64_t narrow_scratch_floats(const LinearProblem& problem);

// dst = src * weights^T + bias. The same bits for any number of threads.
void narrow_product(const LinearProblem& problem, const NarrowProduct& operands, float* scratch);

}  // namespace dlprim
