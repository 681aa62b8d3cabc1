#include "primitives/conv/conv_pairs.h"

#include <algorithm>

namespace dlprim {
namespace {

std::int64_t offset_of(const ActivationStrides& strides, const ChannelBlocks& blocks,
                       std::int64_t block) {
    return block / blocks.per_group() * strides.group + block % blocks.per_group() * strides.block;
}

std::int64_t channels_of(const ChannelBlocks& blocks, std::int64_t block) {
    return block % blocks.per_group() == blocks.per_group() - 1 ? blocks.last() : blocks.block;
}

}  // namespace

PairPacker::PairPacker(const ConvProblem& problem, const PairedImages& paired)
    : whole_(paired.whole),
      paired_(paired),
      in_(src_blocks(whole_)),
      out_(dst_blocks(whole_)),
      src_(activation_strides(problem.layout, in_, whole_.H, whole_.W)),
      dst_(activation_strides(problem.layout, out_, whole_.P(), whole_.Q())),
      is_read_(static_cast<std::size_t>(paired.shape.H), false) {
    const ConvShape& shape = paired.shape;
    for (std::int64_t p = 0; p < shape.P(); ++p) {
        for (std::int64_t r = 0; r < shape.R; ++r) {
            const std::int64_t h = p * shape.stride_h + r * shape.dilation_h - shape.pad_top;
            if (h >= 0 && h < shape.H) is_read_[static_cast<std::size_t>(h)] = true;
        }
    }
}

const char* PairPacker::src_rows(const void* src, std::int64_t band) const {
    const std::int64_t row = paired_.first_row + band % paired_.bands * paired_.row_step;
    return static_cast<const char*>(src) +
           (band / paired_.bands * src_.image + std::max<std::int64_t>(row, 0) * src_.row) *
               size_of(DType::bf16);
}

const char* PairPacker::dst_rows(const void* diff_dst, std::int64_t band) const {
    return static_cast<const char*>(diff_dst) +
           (band / paired_.bands * dst_.image +
            band % paired_.bands * paired_.shape.P() * dst_.row) *
               size_of(DType::bf16);
}

void PairPacker::pack_block(std::int64_t band, std::int64_t block, const void* src,
                            const void* diff_dst, const Target& target) const {
    const std::int64_t image = band / paired_.bands;
    const std::int64_t within = band % paired_.bands;
    if (block < in_.count()) {
        auto* const out =
            reinterpret_cast<std::uint16_t*>(target.packed + target.index * paired_.src_bytes +
                                             block * (paired_.src_bytes / in_.count()));
        pack_src(within, block, static_cast<const std::uint16_t*>(src) + image * src_.image, out);
        return;
    }
    auto* const out = reinterpret_cast<std::uint16_t*>(
        target.packed + target.bands * paired_.src_bytes + target.index * paired_.dst_bytes +
        (block - in_.count()) * (paired_.dst_bytes / out_.count()));
    pack_diff_dst(within, block - in_.count(),
                  static_cast<const std::uint16_t*>(diff_dst) + image * dst_.image, out);
}

void PairPacker::pack_src(std::int64_t band, std::int64_t block, const std::uint16_t* image,
                          std::uint16_t* out) const {
    const std::uint16_t* const channels = image + offset_of(src_, in_, block);
    const std::int64_t row_size = paired_.pairs_src * paired_.columns_src * 2;
    for (const std::int64_t first : paired_.first) {
        for (std::int64_t row = 0; row < paired_.shape.H; ++row, out += row_size) {
            if (!is_read_[static_cast<std::size_t>(row)]) continue;
            const std::int64_t h = paired_.first_row + band * paired_.row_step + row;
            if (h < 0 || h >= whole_.H) {
                std::fill_n(out, row_size, std::uint16_t{0});
            } else if (paired_.windows) {
                pack_windows(channels + h * src_.row, out);
            } else {
                pack_row(channels + h * src_.row, channels_of(in_, block), first, out);
            }
        }
    }
}

void PairPacker::pack_row(const std::uint16_t* row, std::int64_t channels, std::int64_t first,
                          std::uint16_t* out) const {
    pack_pixel_pairs({.row = row,
                      .width = whole_.W,
                      .ld = src_.pixel,
                      .channels = channels,
                      .first = first,
                      .step = whole_.stride_w,
                      .count = paired_.pairs_src * 2,
                      .out = out,
                      .ld_out = paired_.columns_src});
}

// Windows that lie inside the row are rows of pixels to pack_pixel_pairs; what the others have
// inside is added to the zeros that it leaves for them.
void PairPacker::pack_windows(const std::uint16_t* row, std::uint16_t* out) const {
    const std::int64_t C = whole_.C;
    const std::int64_t stride = whole_.stride_w;
    const std::int64_t Q = whole_.Q();
    const std::int64_t begin = std::min((whole_.pad_left + stride - 1) / stride, Q);
    const std::int64_t fitting = (whole_.W - whole_.S + whole_.pad_left) / stride + 1;
    const std::int64_t end =
        whole_.W < whole_.S ? begin : std::clamp<std::int64_t>(fitting, begin, Q);
    pack_pixel_pairs({.row = row + (begin * stride - whole_.pad_left) * C,
                      .width = end - begin,
                      .ld = stride * C,
                      .channels = paired_.columns_src,
                      .first = -begin,
                      .step = 1,
                      .count = paired_.pairs_src * 2,
                      .out = out,
                      .ld_out = paired_.columns_src});
    for (std::int64_t q = begin > 0 ? 0 : end; q < Q; q = q + 1 == begin ? end : q + 1) {
        for (std::int64_t i = 0; i < paired_.columns_src; ++i) {
            const std::int64_t element = (q * stride - whole_.pad_left) * C + i;
            if (element < 0 || element >= whole_.W * C) continue;
            out[(q / 2 * paired_.columns_src + i) * 2 + q % 2] = row[element];
        }
    }
}

void PairPacker::pack_diff_dst(std::int64_t band, std::int64_t block, const std::uint16_t* image,
                               std::uint16_t* out) const {
    const std::uint16_t* const channels = image + offset_of(dst_, out_, block);
    const std::int64_t rows = paired_.shape.P();
    const std::int64_t row_size = paired_.pairs_dst * out_.block * 2;
    for (std::int64_t row = 0; row < rows; ++row, out += row_size) {
        pack_pixel_pairs({.row = channels + (band * rows + row) * dst_.row,
                          .width = whole_.Q(),
                          .ld = dst_.pixel,
                          .channels = channels_of(out_, block),
                          .first = 0,
                          .step = 1,
                          .count = whole_.Q(),
                          .out = out,
                          .ld_out = out_.block});
    }
}

}  // namespace dlprim
