// The gradient through an activation and with respect to the bias, in one pass over activations of
// either layout: both need every element of diff_dst once and nothing else, so they cost what
// reading and writing it costs. relu, relu6, sigmoid, hardsigmoid and tanh take their slope from
// their result; gelu, gelu_tanh, swish and hardswish from what they were applied to, because their
// results do not tell.
#pragma once

#include <cstdint>

#include "brgemm/spec.h"
#include "primitives/tensor/channel_blocks.h"
#include "primitives/tensor/layout.h"

namespace dlprim {

struct ActivationBackward {
    Activations tensor = {};  // shape and type of diff_dst
    Format layout = Format::blocked;
    Activation activation = Activation::none;
    const void* diff_dst = nullptr;
    // The result or the argument; not read without an activation. Of relu an element passes where
    // the result <= 0 is false (so NaN passes), or where a bit is 1 of the mask, which may be given
    // instead: a bit per element in rows of ceil(block / 8) bytes (channels-last: ceil(channels /
    // 8)) per pixel. Every one passes without both.
    const void* saved = nullptr;
    const std::uint8_t* relu_mask = nullptr;
    void* out = nullptr;  // may be diff_dst itself; may be null without an activation and of relu
    float* diff_bias = nullptr;  // may be null; one value per channel: the sum of what passed
};

// Padding channels are neither read nor written. diff_bias is summed in float32 in an order that
// does not depend on the number of threads, and is zero for an empty minibatch.
// `scratch`, for diff_bias only, is aligned to the cache line and as large as the first of the two
// says.
std::int64_t activation_backward_scratch_bytes(const Activations& tensor, Format layout);
void activation_backward(const ActivationBackward& problem, char* scratch);

}  // namespace dlprim
