// The weights' part of conv_layout.h. Plain weights (K, C, R, S) of a block are a matrix of
// [bk][bc * R * S], whose transposition has the rows of the packed block, only in another order:
// it goes into scratch that stays in the cache, and from there row by row.
#include <algorithm>
#include <cstring>

#include "brgemm/isa.h"
#include "primitives/buffer.h"
#include "primitives/conv_layout.h"
#include "primitives/pack_rows.h"
#include "primitives/parallel.h"
#include "primitives/partition.h"
#include "primitives/transposition.h"

namespace dlprim {
namespace {

constexpr std::int64_t kScratchBytes = 64 * 1024;
// What a task moves: see pack.cpp.
constexpr std::int64_t kTaskBytes = 128 * 1024;

std::int64_t rounded_up(std::int64_t value, std::int64_t step) {
    return (value + step - 1) / step * step;
}

// The packed blocks of a shape that is not depthwise.
struct WeightBlocks {
    ChannelBlocks C;
    ChannelBlocks K;
    std::int64_t taps;   // R * S
    std::int64_t size;   // bytes of an element
    std::int64_t group;  // neighbours along bc that are side by side; 1 in plain order

    WeightBlocks(const ConvShape& shape, DType dtype, std::int64_t neighbours)
        : C(src_blocks(shape)),
          K(dst_blocks(shape)),
          taps(shape.R * shape.S),
          size(size_of(dtype)),
          group(neighbours) {}

    std::int64_t count() const { return K.count() * C.per_group(); }
    std::int64_t matrix_bytes() const { return rounded_up(C.block, group) * K.block * size; }
    std::int64_t bytes() const { return taps * matrix_bytes(); }
};

// A few channels c of one block, all its channels k and taps.
struct WeightPiece {
    std::int64_t plain;       // byte offset in plain weights, a row for each k
    std::int64_t packed;      // byte offset of the first tap in packed weights
    std::int64_t channels_c;  // those that exist, maybe none
    std::int64_t channels_k;
    std::int64_t rows;  // channels c with those of the padding
};

std::int64_t channels_in(const ChannelBlocks& blocks, std::int64_t index) {
    return index + 1 == blocks.per_group() ? blocks.last() : blocks.block;
}

WeightPiece piece_at(const WeightBlocks& blocks, std::int64_t block, Range range) {
    const std::int64_t k = block / blocks.C.per_group(), c = block % blocks.C.per_group();
    const std::int64_t group = k / blocks.K.per_group(), k_in_group = k % blocks.K.per_group();
    const std::int64_t first_k = group * blocks.K.channels + k_in_group * blocks.K.block;
    const std::int64_t first_c = c * blocks.C.block + range.begin;
    const std::int64_t left = channels_in(blocks.C, c) - range.begin;
    return {.plain = (first_k * blocks.C.channels + first_c) * blocks.taps * blocks.size,
            .packed = block * blocks.bytes() + range.begin * blocks.K.block * blocks.size,
            .channels_c = std::clamp<std::int64_t>(left, 0, range.size()),
            .channels_k = channels_in(blocks.K, k_in_group),
            .rows = range.size()};
}

// body(piece, scratch) with scratch for [c][tap][bk].
template <class Body>
void for_pieces(const WeightBlocks& blocks, const Body& body) {
    const std::int64_t row_bytes = blocks.taps * blocks.K.block * blocks.size;
    const std::int64_t rows = std::max<std::int64_t>(kScratchBytes / row_bytes / 2 * 2, 2);
    const Blocks parts{blocks.C.block, rows};
    const std::int64_t scratch_bytes = std::min(rows, blocks.C.block) * row_bytes;
    parallel_for(blocks.count() * parts.count(), [&](std::int64_t task) {
        const Buffer scratch((scratch_bytes + 3) / 4);
        body(piece_at(blocks, task / parts.count(), parts.at(task % parts.count())),
             reinterpret_cast<char*>(scratch.data()));
    });
}

// A row of bk elements. Those of a VNNI form are two elements apart, and only bfloat16 has one.
void gather_row(const WeightBlocks& blocks, const char* src, std::int64_t elements, char* dst) {
    if (blocks.group == 1) {
        std::memcpy(dst, src, static_cast<std::size_t>(elements * blocks.size));
        return;
    }
    const auto* from = reinterpret_cast<const std::uint16_t*>(src);
    auto* to = reinterpret_cast<std::uint16_t*>(dst);
    for (std::int64_t i = 0; i < elements; ++i) to[i] = from[2 * i];
}

void unpack(const WeightBlocks& blocks, DType dtype, const void* packed, void* plain) {
    const std::int64_t row_bytes = blocks.K.block * blocks.size;
    for_pieces(blocks, [&](const WeightPiece& piece, char* scratch) {
        const char* const src = static_cast<const char*>(packed) + piece.packed;
        for (std::int64_t c = 0; c < piece.channels_c; ++c) {
            const std::int64_t in_block =
                c / blocks.group * blocks.group * row_bytes + c % blocks.group * blocks.size;
            for (std::int64_t tap = 0; tap < blocks.taps; ++tap) {
                gather_row(blocks, src + tap * blocks.matrix_bytes() + in_block, piece.channels_k,
                           scratch + (c * blocks.taps + tap) * row_bytes);
            }
        }
        transpose(dtype, {.src = scratch,
                          .ld_src = blocks.K.block,
                          .rows = piece.channels_c * blocks.taps,
                          .columns = piece.channels_k,
                          .dst = static_cast<char*>(plain) + piece.plain,
                          .ld_dst = blocks.C.channels * blocks.taps});
    });
}

// The weights of a depthwise shape are laid out as an image of R x S pixels.
Activations depthwise_weights(const ConvShape& shape, DType dtype) {
    return {.images = 1,
            .height = shape.R,
            .width = shape.S,
            .blocks = src_blocks(shape),
            .dtype = dtype};
}

}  // namespace

std::int64_t packed_weights_size(const ConvShape& shape, DType dtype) {
    const ChannelBlocks C = src_blocks(shape), K = dst_blocks(shape);
    if (shape.is_depthwise()) return C.count() * shape.R * shape.S * C.block;
    return K.count() * C.per_group() * shape.R * shape.S *
           rounded_up(C.block, elements_per_word(dtype)) * K.block;
}

void pack_weights(const ConvShape& shape, DType dtype, const void* plain, void* packed) {
    if (shape.is_depthwise()) {
        pack_blocked(depthwise_weights(shape, dtype), plain, packed);
        return;
    }
    const WeightBlocks blocks(shape, dtype, elements_per_word(dtype));
    const std::int64_t row_bytes = blocks.K.block * blocks.size;
    const PackFunction pack_rows = row_functions(usable_isa()).pack;
    for_pieces(blocks, [&](const WeightPiece& piece, char* scratch) {
        if (piece.channels_c < piece.rows || piece.channels_k < blocks.K.block) {
            std::memset(scratch, 0, static_cast<std::size_t>(piece.rows * blocks.taps * row_bytes));
        }
        transpose(dtype, {.src = static_cast<const char*>(plain) + piece.plain,
                          .ld_src = blocks.C.channels * blocks.taps,
                          .rows = piece.channels_k,
                          .columns = piece.channels_c * blocks.taps,
                          .dst = scratch,
                          .ld_dst = blocks.K.block});
        for (std::int64_t tap = 0; tap < blocks.taps; ++tap) {
            pack_rows(
                {.from = dtype,
                 .to = dtype,
                 .k = piece.rows,
                 .n = blocks.K.block,
                 .src = scratch + tap * row_bytes,
                 .ld_src = blocks.taps * blocks.K.block,
                 .dst = static_cast<char*>(packed) + piece.packed + tap * blocks.matrix_bytes(),
                 .ld_dst = blocks.K.block},
                {0, piece.rows});
        }
    });
}

void unpack_weights(const ConvShape& shape, DType dtype, const void* packed, void* plain) {
    if (shape.is_depthwise()) {
        unpack_blocked(depthwise_weights(shape, dtype), packed, plain);
    } else {
        unpack(WeightBlocks(shape, dtype, elements_per_word(dtype)), dtype, packed, plain);
    }
}

void unpack_diff_weights(const ConvShape& shape, DType dtype, const void* packed, void* plain) {
    if (shape.is_depthwise()) {
        unpack_blocked(depthwise_weights(shape, dtype), packed, plain);
    } else {
        unpack(WeightBlocks(shape, dtype, 1), dtype, packed, plain);
    }
}

void clear_diff_weights_padding(const ConvShape& shape, DType dtype, void* packed) {
    const WeightBlocks blocks(shape, dtype, 1);
    const std::int64_t row_bytes = blocks.K.block * blocks.size;
    for (std::int64_t block = 0; block < blocks.count(); ++block) {
        const WeightPiece piece = piece_at(blocks, block, {0, blocks.C.block});
        if (piece.channels_c == piece.rows && piece.channels_k == blocks.K.block) continue;
        char* row = static_cast<char*>(packed) + piece.packed;
        for (std::int64_t i = 0; i < blocks.taps * piece.rows; ++i, row += row_bytes) {
            const bool is_there = i % piece.rows < piece.channels_c;
            const std::int64_t kept = is_there ? piece.channels_k * blocks.size : 0;
            std::memset(row + kept, 0, static_cast<std::size_t>(row_bytes - kept));
        }
    }
}

std::int64_t transposed_weights_size(const ConvShape& shape, DType dtype) {
    const ChannelBlocks C = src_blocks(shape), K = dst_blocks(shape);
    return C.count() * K.per_group() * shape.R * shape.S *
           rounded_up(K.block, elements_per_word(dtype)) * C.block;
}

void transpose_weights(const ConvShape& shape, DType dtype, const void* packed, void* transposed) {
    const WeightBlocks blocks(shape, dtype, elements_per_word(dtype));
    const std::int64_t Cb = blocks.C.per_group(), Kb = blocks.K.per_group();
    const std::int64_t size = blocks.size, group = blocks.group;
    const std::int64_t from_bytes = blocks.matrix_bytes();
    const std::int64_t to_bytes = rounded_up(blocks.K.block, group) * blocks.C.block * size;
    const Blocks tasks{blocks.count() * blocks.taps, 1 + kTaskBytes / from_bytes};
    parallel_for(tasks.count(), [&](std::int64_t task) {
        const Range matrices = tasks.at(task);
        for (std::int64_t i = matrices.begin; i < matrices.end; ++i) {
            const std::int64_t block = i / blocks.taps, tap = i % blocks.taps;
            const std::int64_t k = block % Kb, c = block / Kb % Cb, g = block / Kb / Cb;
            const std::int64_t from = ((g * Kb + k) * Cb + c) * blocks.taps + tap;
            transpose_packed(dtype, {.src = static_cast<const char*>(packed) + from * from_bytes,
                                     .ld_src = blocks.K.block,
                                     .rows = blocks.C.block,
                                     .columns = blocks.K.block,
                                     .dst = static_cast<char*>(transposed) + i * to_bytes,
                                     .ld_dst = blocks.C.block});
        }
    });
}

}  // namespace dlprim
