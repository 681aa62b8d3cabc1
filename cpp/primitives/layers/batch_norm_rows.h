// The vector code behind batch_norm.h: some pixels of a block, channels in vectors. Written in
// Highway and compiled once per vector width as per_isa.h describes.
#pragma once

#include <cstdint>

#include "jit/dtype.h"
#include "jit/isa.h"

namespace dlprim {

// Pixels at the same distance; pointers are at the first channel of the first one, per-channel
// arrays at the first channel.
struct NormPixels {
    std::int64_t pixels = 0;
    std::int64_t channels = 0;
    std::int64_t distance = 0;       // elements from pixel to pixel
    std::int64_t mask_distance = 0;  // bytes
    const void* src = nullptr;
    const void* diff_dst = nullptr;
    const void* diff_addend = nullptr;  // add_gradients: of diff_dst, or null
    const void* residual = nullptr;     // or null
    const void* dst = nullptr;          // backward: or null
    void* out = nullptr;  // dst, diff_src or (sums) diff_residual, where it may be null
    const std::uint8_t* relu_mask = nullptr;
    std::uint8_t* relu_mask_out = nullptr;
    const float* mean = nullptr;
    const float* scale = nullptr;  // weight * inverse_std
    const float* bias = nullptr;
    const float* mean_diff = nullptr;   // backward: mean of what passed,
    const float* mean_slope = nullptr;  // and of that times (src - mean), over the variance
    float* sums = nullptr;              // of src - mean, or of what passed
    float* products = nullptr;          // of (src - mean)^2, or of what passed times (src - mean)
    bool relu = false;
};

using NormFunction = void (*)(const NormPixels&);

struct NormFunctions {
    NormFunction add_statistics;  // sums, products += about `mean`, any value near the true one
    NormFunction normalize;       // out
    NormFunction add_gradients;   // sums, products += and out, if any
    NormFunction apply;           // out = scale * (passed - mean_diff - (src - mean) * mean_slope)
    // `channels` float32 values at `sums` from those at src.
    NormFunction widen;
};

// For an ISA level that this machine can run; f32 or bf16.
NormFunctions norm_functions(Isa isa, DType dtype);

}  // namespace dlprim
