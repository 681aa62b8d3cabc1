// Maximum and average pooling over activations of either layout, by their definition on windows:
// forward, each result gathers its window; backward, each input gathers from the windows it is in,
// so that every element is written once, in order, and nothing is added up in memory.
#pragma once

#include <cstdint>

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

// `indices` (max; may be null) receives for each result the tap r * S + s that it came from, the
// first of equal ones; NaN beats numbers. Padding channels are neither read nor written.
void pool_forward(const Pooling& pooling, const void* src, void* dst, std::uint8_t* indices);
// `indices` for max only.
void pool_backward(const Pooling& pooling, const void* diff_dst, const std::uint8_t* indices,
                   void* diff_src);

}  // namespace dlprim
