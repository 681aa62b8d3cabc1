// The vector code behind activation_backward.h, along neighbouring elements. Written in Highway and
// compiled once per vector width as per_isa.h describes.
#pragma once

#include <cstdint>

#include "brgemm/spec.h"
#include "jit/dtype.h"
#include "jit/isa.h"

namespace dlprim {

// `count` elements; `out` may be diff_dst.
struct ActivationRow {
    std::int64_t count = 0;
    const void* diff_dst = nullptr;
    const void* saved = nullptr;
    void* out = nullptr;
};

using ActivationRowFunction = void (*)(const ActivationRow&);

// For an ISA level that this machine can run; f32 or bf16, and one of sigmoid, tanh, gelu,
// gelu_tanh and swish.
ActivationRowFunction activation_row_function(Isa isa, DType dtype, Activation activation);

}  // namespace dlprim
