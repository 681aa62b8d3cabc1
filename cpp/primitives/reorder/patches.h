// Channels-last images as what a filter sees of them: for each pixel of the result the pixels under
// its taps, one after the other. A convolution of these is a product of two matrices whose rows no
// image row cuts short. Of bytes, and where rows are short, that is worth copying them once per
// tap: a row of 7 pixels fills less than half of a tile of AMX and reads all weights for itself.
#pragma once

#include <cstdint>

namespace dlprim {

struct Patches {
    std::int64_t images = 0;
    std::int64_t height = 0;
    std::int64_t width = 0;
    std::int64_t pixel_bytes = 0;
    std::int64_t P = 0;  // of the result
    std::int64_t Q = 0;
    std::int64_t R = 0;  // of the filter
    std::int64_t S = 0;
    std::int64_t stride_h = 1;
    std::int64_t stride_w = 1;
    std::int64_t above = 0;  // padding
    std::int64_t before = 0;

    std::int64_t row_bytes() const { return S * pixel_bytes; }
    std::int64_t image_bytes() const { return P * Q * R * row_bytes(); }
    std::int64_t bytes() const { return images * image_bytes(); }
};

// C-contiguous both, dst as [images][P][Q][R][S][pixel]; `value` is the byte of the padding.
void copy_patches(const Patches& patches, const void* src, int value, void* dst);

}  // namespace dlprim
