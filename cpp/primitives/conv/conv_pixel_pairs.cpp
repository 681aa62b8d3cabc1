#include <algorithm>

#include "jit/isa.h"
#include "primitives/conv/conv_layout.h"
#include "primitives/tensor/pack_rows.h"
#include "primitives/tensor/partition.h"

namespace dlprim {
namespace {

// Of the pixels wanted, those that exist.
Range existing(const PixelPairs& pairs) {
    const Blocks before{-pairs.first, pairs.step}, inside{pairs.width - pairs.first, pairs.step};
    const std::int64_t begin = pairs.first < 0 ? std::min(before.count(), pairs.count) : 0;
    const std::int64_t end = pairs.first < pairs.width ? std::min(inside.count(), pairs.count) : 0;
    return {begin, std::max(begin, end)};
}

std::uint16_t* out_of(const PixelPairs& pairs, std::int64_t pair) {
    return pairs.out + pair * pairs.ld_out * 2;
}

const std::uint16_t* pixel_of(const PixelPairs& pairs, std::int64_t index) {
    return pairs.row + (pairs.first + index * pairs.step) * pairs.ld;
}

void clear(const PixelPairs& pairs, Range range) {
    for (std::int64_t pair = range.begin; pair < range.end; ++pair) {
        std::fill_n(out_of(pairs, pair), 2 * pairs.channels, std::uint16_t{0});
    }
}

}  // namespace

void pack_pixel_pairs(const PixelPairs& pairs) {
    const Range pixels = existing(pairs);
    if (pixels.size() == 0) {
        clear(pairs, {0, (pairs.count + 1) / 2});
        return;
    }
    clear(pairs, {0, pixels.begin / 2});
    std::int64_t even = pixels.begin;
    if (even % 2 == 1) {
        const std::uint16_t* const src = pixel_of(pairs, even);
        std::uint16_t* const out = out_of(pairs, even / 2);
        for (std::int64_t c = 0; c < pairs.channels; ++c) {
            out[2 * c] = 0;
            out[2 * c + 1] = src[c];
        }
        ++even;
    }
    const std::int64_t left = pixels.end - even;
    if (left > 0) {
        row_functions(usable_isa())
            .pack({.from = DType::bf16,
                   .to = DType::bf16,
                   .k = left,
                   .n = pairs.channels,
                   .src = pixel_of(pairs, even),
                   .ld_src = pairs.step * pairs.ld,
                   .dst = out_of(pairs, even / 2),
                   .ld_dst = pairs.ld_out},
                  {0, left});
    }
    clear(pairs, {(pixels.end + 1) / 2, (pairs.count + 1) / 2});
}

}  // namespace dlprim
