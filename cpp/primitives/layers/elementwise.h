// Layers on single elements, for where no other pass can take them along: relu, sums, and the
// gradient through relu. One read of each operand, one write; the shape does not matter.
#pragma once

#include <cstdint>

#include "jit/dtype.h"

namespace dlprim {

enum class Elementwise : std::uint8_t {
    relu,           // first, 0 where it is negative; NaN stays
    sum,            // first + second
    sum_relu,       // relu of that
    relu_backward,  // first, 0 where second <= 0: a NaN there lets it pass
};

struct ElementwiseOperands {
    std::int64_t count = 0;
    const void* first = nullptr;
    const void* second = nullptr;  // not for relu
    void* out = nullptr;           // may be an operand
};

// Computes in float32 and rounds once. f32 or bf16.
void run_elementwise(Elementwise operation, DType dtype, const ElementwiseOperands& operands);

}  // namespace dlprim
