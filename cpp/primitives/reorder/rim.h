// Images with a rim around them. A filter that reaches beyond an image meets zeros, which in 8 bits
// are the zero point of the image: with a rim of it every pixel of a result sees the same taps, so
// that rows are multiplied whole and one correction, which knows no borders, takes the zero point
// off. The copy is of bytes, of which there are few for each product that reads them. Where pixels
// are no whole words it can make them so, and the taps of a filter join to one sum.
#pragma once

#include <cstdint>

namespace dlprim {

struct Rim {
    std::int64_t planes = 0;
    std::int64_t rows = 0;    // of a plane
    std::int64_t pixels = 0;  // of a row
    std::int64_t pixel_bytes = 0;
    std::int64_t wide_pixel_bytes = 0;  // of the copy: the same, or the next whole words
    std::int64_t above = 0;             // rows
    std::int64_t below = 0;
    std::int64_t before = 0;  // pixels
    std::int64_t behind = 0;

    bool is_empty() const {
        return above + below + before + behind == 0 && wide_pixel_bytes == pixel_bytes;
    }
    std::int64_t row_bytes() const { return pixels * pixel_bytes; }
    std::int64_t wide_rows() const { return above + rows + below; }
    std::int64_t wide_row_bytes() const { return (before + pixels + behind) * wide_pixel_bytes; }
    std::int64_t bytes() const { return planes * wide_rows() * wide_row_bytes(); }
};

// C-contiguous both; `value` is the byte that the rim holds. What follows a pixel up to its last
// whole word is anything.
void copy_with_rim(const Rim& rim, const void* src, int value, void* dst);

}  // namespace dlprim
