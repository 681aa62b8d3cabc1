// The vector code behind activation_backward.h: pixels one after the other, vectors along their
// channels. Written in Highway and compiled once per vector width as per_isa.h describes. A
// channel's sum is one chain over the pixels, so its bits are the same for every width.
#pragma once

#include <cstdint>

#include "brgemm/spec.h"
#include "jit/dtype.h"
#include "jit/isa.h"

namespace dlprim {

// Pixels at the same distance; the pointers are at the first channel of the first one.
struct GradientPixels {
    std::int64_t pixels = 0;
    std::int64_t channels = 0;
    std::int64_t distance = 0;       // elements from pixel to pixel
    std::int64_t mask_distance = 0;  // bytes
    const void* diff_dst = nullptr;
    // Of relu at most one of the two, everything passes without both; saved of others.
    const void* saved = nullptr;
    const std::uint8_t* relu_mask = nullptr;
    void* out = nullptr;    // may be diff_dst; of relu may be null
    float* sums = nullptr;  // may be null; what passed is added, channel by channel
};

using GradientFunction = void (*)(const GradientPixels&);

// For an ISA level that this machine can run; f32 or bf16. No activation is relu without a gate.
GradientFunction gradient_function(Isa isa, DType dtype, Activation activation);

}  // namespace dlprim
