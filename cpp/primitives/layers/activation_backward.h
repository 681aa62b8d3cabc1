// The gradient through an activation and with respect to the bias, over samples in the layout of
// linear_layout.h (Google Highway). relu, sigmoid and tanh take their slope from their result;
// gelu, gelu_tanh and swish from what they were applied to, because their results do not tell.
#pragma once

#include "brgemm/spec.h"
#include "primitives/conv/conv_layout.h"

namespace dlprim {

// Whether the slope is a function of what the activation was applied to, not of its result.
constexpr bool slope_needs_argument(Activation activation) {
    return activation == Activation::gelu || activation == Activation::gelu_tanh ||
           activation == Activation::swish;
}

struct ActivationBackward {
    Activations tensor = {};  // shape and type of diff_dst, one image
    Format layout = Format::blocked;
    Activation activation = Activation::none;
    const void* diff_dst = nullptr;
    const void* saved = nullptr;  // the result or the argument; not read without an activation
    void* out = nullptr;          // may be diff_dst itself, or null without an activation
    float* diff_bias = nullptr;   // may be null; one value per channel
};

// Padding channels are neither read nor written. The same bits for any number of threads.
// `scratch`, for diff_bias only, is that of relu_backward().
void activation_backward(const ActivationBackward& problem, char* scratch);

}  // namespace dlprim
