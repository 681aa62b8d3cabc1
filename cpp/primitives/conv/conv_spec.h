// What a convolution is, as its maker says it, before anything is chosen.
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

}  // namespace dlprim
