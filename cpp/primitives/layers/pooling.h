// Maximum and average pooling over activations of either layout, as windows of pixels.
#pragma once

#include <cstdint>

#include "primitives/layers/resampling.h"
#include "primitives/tensor/channel_blocks.h"
#include "primitives/tensor/layout.h"

namespace dlprim {

enum class PoolingKind : std::uint8_t {
    max,
    average,         // of the elements that exist
    average_padded,  // zeros of the padding count
};

struct Pooling {
    Activations src;
    Format layout = Format::blocked;
    PoolingKind kind = PoolingKind::max;
    std::int64_t R = 1, S = 1;  // window
    std::int64_t stride_h = 1, stride_w = 1;
    std::int64_t pad_h = 0, pad_w = 0;  // on every side, at most half of the window

    std::int64_t P() const { return (src.height + 2 * pad_h - R) / stride_h + 1; }
    std::int64_t Q() const { return (src.width + 2 * pad_w - S) / stride_w + 1; }
    Activations dst() const { return {src.images, P(), Q(), src.blocks, src.dtype}; }
};

// Throws std::invalid_argument unless every window holds an element and, for the maximum, taps have
// numbers below 256.
void validate(const Pooling& pooling);

// Prepared, as passes over windows. Of the maximum taps are r * S + s, the first of equal ones; NaN
// beats numbers.
Resampling pool_forward(const Pooling& pooling);
Resampling pool_backward(const Pooling& pooling);

}  // namespace dlprim
