#include <algorithm>
#include <cstring>

#include "jit/isa.h"
#include "primitives/conv/conv_weights.h"
#include "primitives/reorder/serial_moves.h"

namespace dlprim {
namespace {

void fetch(const float* pixel, std::size_t bytes) {
    constexpr std::size_t kLine = 64;
    const auto* const first = reinterpret_cast<const char*>(pixel);
    for (std::size_t line = 0; line < bytes; line += kLine) __builtin_prefetch(first + line);
}

// Elements from the first block of channels of an image to another one.
std::int64_t block_offset(const ActivationStrides& strides, const ChannelBlocks& blocks,
                          std::int64_t block) {
    return block / blocks.per_group() * strides.group + block % blocks.per_group() * strides.block;
}

void clear(const PixelPairs& pairs, Range range) {
    for (std::int64_t pair = range.begin; pair < range.end; ++pair) {
        std::fill_n(pairs.out + pair * pairs.ld_out * 2, 2 * pairs.channels, std::uint16_t{0});
    }
}

}  // namespace

void pack_pixel_pairs(const PixelPairs& pairs) {
    const Blocks before{-pairs.first, pairs.step}, inside{pairs.width - pairs.first, pairs.step};
    // Of the pixels wanted, those that exist.
    const std::int64_t begin = pairs.first < 0 ? std::min(before.count(), pairs.count) : 0;
    const std::int64_t end = pairs.first < pairs.width ? std::min(inside.count(), pairs.count) : 0;
    const std::int64_t all = (pairs.count + 1) / 2;
    if (end <= begin) {
        clear(pairs, {0, all});
        return;
    }
    const auto pixel = [&](std::int64_t index) {
        return pairs.row + (pairs.first + index * pairs.step) * pairs.ld;
    };
    clear(pairs, {0, begin / 2});
    std::int64_t even = begin;
    if (even % 2 == 1) {
        std::uint16_t* const out = pairs.out + even / 2 * pairs.ld_out * 2;
        for (std::int64_t c = 0; c < pairs.channels; ++c) {
            out[2 * c] = 0;
            out[2 * c + 1] = pixel(begin)[c];
        }
        ++even;
    }
    if (const std::int64_t left = end - even; left > 0) {
        group({.from = DType::bf16,
               .to = DType::bf16,
               .src = pixel(even),
               .src_row = pairs.step * pairs.ld * 2,
               .rows = left,
               .columns = pairs.channels,
               .dst = pairs.out + even / 2 * pairs.ld_out * 2,
               .dst_row = pairs.ld_out * 4});
    }
    clear(pairs, {(end + 1) / 2, all});
}

ImagePacker::ImagePacker(const ConvProblem& problem, const WeightsImages& images)
    : images_(images),
      from_(images.form == WeightsImages::Form::dense ? problem.shape : images.whole),
      element_(size_of(problem.dtype)),
      in_(src_blocks(from_)),
      out_(dst_blocks(from_)),
      src_(activation_strides(problem.layout, in_, from_.H, from_.W)),
      dst_(activation_strides(problem.layout, out_, from_.P(), from_.Q())),
      is_read_(static_cast<std::size_t>(images.shape.H), false) {
    const ConvShape& shape = images.shape;
    for (std::int64_t p = 0; p < shape.P(); ++p) {
        for (std::int64_t r = 0; r < shape.R; ++r) {
            const std::int64_t h = p * shape.stride_h + r * shape.dilation_h - shape.pad_top;
            if (h >= 0 && h < shape.H) is_read_[static_cast<std::size_t>(h)] = true;
        }
    }
}

std::int64_t ImagePacker::src_offset(std::int64_t band) const {
    const std::int64_t row = images_.first_row + band % images_.bands * images_.row_step;
    return (band / images_.bands * src_.image + std::max<std::int64_t>(row, 0) * src_.row) *
           element_;
}

std::int64_t ImagePacker::dst_offset(std::int64_t band) const {
    return (band / images_.bands * dst_.image +
            band % images_.bands * (from_.P() / images_.bands) * dst_.row) *
           element_;
}

void ImagePacker::pack_block(Range images, std::int64_t image, std::int64_t block,
                             const ConvTensors& tensors, char* packed) const {
    const std::int64_t index = image - images.begin;
    if (block >= in_.count()) {
        block -= in_.count();
        const char* const rows = static_cast<const char*>(tensors.diff_dst) + dst_offset(image);
        char* const out = packed + images.size() * images_.src_bytes + index * images_.dst_bytes +
                          block * (images_.dst_bytes / out_.count());
        const std::int64_t count = out_.in_block(block % out_.per_group());
        const std::int64_t first = block_offset(dst_, out_, block);
        if (images_.form == WeightsImages::Form::dense) {
            gather({reinterpret_cast<const float*>(rows) + first, dst_.row, dst_.pixel, count,
                    out_.block},
                   reinterpret_cast<float*>(out));
        } else {
            pack_dst(reinterpret_cast<const std::uint16_t*>(rows) + first, count,
                     reinterpret_cast<std::uint16_t*>(out));
        }
        return;
    }
    const std::int64_t count = in_.in_block(block % in_.per_group());
    const std::int64_t first = image / images_.bands * src_.image + block_offset(src_, in_, block);
    char* const out =
        packed + index * images_.src_bytes + block * (images_.src_bytes / in_.count());
    if (images_.form == WeightsImages::Form::dense) {
        const std::int64_t row = from_.stride_h * src_.row;
        gather({static_cast<const float*>(tensors.src) + first +
                    image % images_.bands * (from_.P() / images_.bands) * row,
                row, from_.stride_w * src_.pixel, count, in_.block},
               reinterpret_cast<float*>(out));
    } else {
        pack_src(image % images_.bands, static_cast<const std::uint16_t*>(tensors.src) + first,
                 count, reinterpret_cast<std::uint16_t*>(out));
    }
}

void ImagePacker::gather(const SpacedPixels& it, float* out) const {
    const auto bytes = static_cast<std::size_t>(it.channels * element_);
    const std::int64_t rows = from_.P() / images_.bands;
    for (std::int64_t p = 0; p < rows; ++p) {
        const float* from = it.first + p * it.row;
        const std::int64_t below = p + 1 < rows ? it.row : 0;
        for (std::int64_t q = 0; q < from_.Q(); ++q) {
            fetch(from + below, bytes);
            std::memcpy(out, from, bytes);
            from += it.pixel;
            out += it.ld_out;
        }
    }
}

void ImagePacker::pack_src(std::int64_t band, const std::uint16_t* channels, std::int64_t count,
                           std::uint16_t* out) const {
    const std::int64_t row_size = images_.pairs_src * images_.columns_src * 2;
    for (const std::int64_t first : images_.first) {
        for (std::int64_t row = 0; row < images_.shape.H; ++row, out += row_size) {
            if (!is_read_[static_cast<std::size_t>(row)]) continue;
            const std::int64_t h = images_.first_row + band * images_.row_step + row;
            if (h < 0 || h >= from_.H) {
                std::fill_n(out, row_size, std::uint16_t{0});
            } else if (images_.windows) {
                pack_windows(channels + h * src_.row, out);
            } else {
                pack_pixel_pairs({.row = channels + h * src_.row,
                                  .width = from_.W,
                                  .ld = src_.pixel,
                                  .channels = count,
                                  .first = first,
                                  .step = from_.stride_w,
                                  .count = images_.pairs_src * 2,
                                  .out = out,
                                  .ld_out = images_.columns_src});
            }
        }
    }
}

// Windows that lie inside the row are rows of pixels to pack_pixel_pairs; what the others have
// inside is added to the zeros that it leaves for them.
void ImagePacker::pack_windows(const std::uint16_t* row, std::uint16_t* out) const {
    const std::int64_t C = from_.C;
    const std::int64_t stride = from_.stride_w;
    const std::int64_t Q = from_.Q();
    const std::int64_t begin = std::min((from_.pad_left + stride - 1) / stride, Q);
    const std::int64_t fitting = (from_.W - from_.S + from_.pad_left) / stride + 1;
    const std::int64_t end =
        from_.W < from_.S ? begin : std::clamp<std::int64_t>(fitting, begin, Q);
    const std::int64_t columns = images_.columns_src;
    pack_pixel_pairs({.row = row + (begin * stride - from_.pad_left) * C,
                      .width = end - begin,
                      .ld = stride * C,
                      .channels = columns,
                      .first = -begin,
                      .step = 1,
                      .count = images_.pairs_src * 2,
                      .out = out,
                      .ld_out = columns});
    for (std::int64_t q = begin > 0 ? 0 : end; q < Q; q = q + 1 == begin ? end : q + 1) {
        for (std::int64_t i = 0; i < columns; ++i) {
            const std::int64_t element = (q * stride - from_.pad_left) * C + i;
            if (element < 0 || element >= from_.W * C) continue;
            out[(q / 2 * columns + i) * 2 + q % 2] = row[element];
        }
    }
}

void ImagePacker::pack_dst(const std::uint16_t* rows, std::int64_t count,
                           std::uint16_t* out) const {
    for (std::int64_t row = 0; row < images_.shape.P(); ++row) {
        pack_pixel_pairs({.row = rows + row * dst_.row,
                          .width = from_.Q(),
                          .ld = dst_.pixel,
                          .channels = count,
                          .count = from_.Q(),
                          .out = out + row * images_.pairs_dst * out_.block * 2,
                          .ld_out = out_.block});
    }
}

}  // namespace dlprim
