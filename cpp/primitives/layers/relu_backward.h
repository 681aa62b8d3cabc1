// The gradient through a fused relu and with respect to the bias, in one pass over activations in
// the layout of conv_layout.h: both need every element of diff_dst once and nothing else, so they
// cost what reading and writing it costs (Google Highway).
#pragma once

#include <cstdint>

#include "primitives/conv/conv_layout.h"

namespace dlprim {

struct ReluBackward {
    Activations tensor = {};  // shape and type of diff_dst
    Format layout = Format::blocked;
    const void* diff_dst = nullptr;
    // At most one of the two: the result of the forward pass, or its mask, a bit per element in
    // rows of ceil(block / 8) bytes (channels-last: ceil(channels / 8)) per pixel. An element
    // passes where dst <= 0 is false (so NaN passes) or where its bit is 1; every one without both.
    const void* dst = nullptr;
    const std::uint8_t* relu_mask = nullptr;
    void* out = nullptr;         // may be null, or diff_dst itself
    float* diff_bias = nullptr;  // may be null; one value per channel: the sum of what passed
};

// Padding channels are neither read nor written. diff_bias is summed in float32 in an order that
// does not depend on the number of threads, and is zero for an empty minibatch.
// `scratch`, for diff_bias only, is aligned to the cache line and as large as the first of the two
// says.
std::int64_t relu_backward_scratch_bytes(const Activations& tensor, Format layout);
void relu_backward(const ReluBackward& problem, char* scratch);

}  // namespace dlprim
