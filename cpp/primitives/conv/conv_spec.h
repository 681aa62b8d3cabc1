// What a convolution is, as its maker says it before anything is chosen, and what a call has.
#pragma once

#include <cstdint>

#include "brgemm/spec.h"
#include "primitives/conv/conv_contraction.h"

namespace dlprim {

enum class ConvAlgorithm : std::uint8_t {
    direct,
    winograd,   // refused where it cannot be done
    automatic,  // whichever is faster by estimate, pass by pass
};

struct ConvSpec {
    ConvShape shape = {};
    DType dtype = DType::f32;  // or bf16
    Format layout = Format::blocked;
    Activation activation = Activation::none;
    bool bias = false;
    ConvAlgorithm algorithm = ConvAlgorithm::direct;
    bool high_accuracy = false;  // of Winograd: tiles of 2, whose errors are below direct ones

    ConvProblem problem() const { return {shape, dtype, layout}; }
};

// Of all passes: each reads what it needs and writes `result`, which is dst, diff_src or
// diff_weights.
struct ConvTensors {
    const void* src = nullptr;
    const void* diff_dst = nullptr;
    const void* weights = nullptr;
    const float* bias = nullptr;        // K values where the spec has a bias
    const void* residual = nullptr;     // as dst, or dst itself, or null
    std::uint8_t* relu_mask = nullptr;  // or null; rows of ceil(block / 8) bytes per pixel
    // Of Winograd: transform_weights() of the weights, which then are not read; or null.
    const float* transformed = nullptr;
    DType to = DType::f32;  // of diff_weights
    void* result = nullptr;
};

}  // namespace dlprim
