// Weights of a convolution between plain and packed storage, as conv_layout.h declares it. Plain
// weights (K, C, R, S) of a block are a matrix of [bk][bc * R * S], whose transposition has the
// rows of the packed block, only in another order. Tasks are some channels of K and neighbouring
// blocks of C, so that plain storage, which comes from memory and goes there, is one stream per
// row.
#include <algorithm>
#include <cstring>

#include "jit/isa.h"
#include "primitives/conv/conv_layout.h"
#include "primitives/conv/conv_weights_blocks.h"
#include "primitives/tensor/buffer.h"
#include "primitives/tensor/filter_rows.h"
#include "primitives/tensor/pack.h"
#include "primitives/tensor/pack_rows.h"
#include "primitives/tensor/parallel.h"
#include "primitives/tensor/partition.h"
#include "primitives/tensor/transposition.h"

namespace dlprim {
namespace {

constexpr std::int64_t kWordBytes = 4;
// Channels k of a strip. Memory is fast where it is written in order: packed blocks by strips of
// whole rows, plain storage by strips of as few rows as make a cache line of packed storage.
constexpr std::int64_t kPackedStrip = 64;
constexpr std::int64_t kPlainStrip = 16;
// Blocks that are fewer have too few tasks for all threads, and are small enough for any order.
constexpr std::int64_t kFewBlocks = 8;
constexpr std::int64_t kStripBytes = 128 * 1024;
constexpr std::int64_t kScratchBytes = 64 * 1024;

// Some channels k of one block, all its channels c and taps.
struct Strip {
    std::int64_t plain;     // byte offset in plain weights, a row for each k
    std::int64_t packed;    // byte offset of the first tap in packed weights
    std::int64_t filters;   // channels k that exist, maybe none
    std::int64_t channels;  // c
    std::int64_t rows;      // channels k with those of the padding
    bool is_ragged;
};

Strip strip_at(const WeightBlocks& blocks, std::int64_t plain_size, std::int64_t block,
               Range rows) {
    const WeightPiece piece = piece_at(blocks, block, {0, blocks.C.block});
    const std::int64_t filters =
        std::clamp<std::int64_t>(piece.channels_k - rows.begin, 0, rows.size());
    const std::int64_t first = rows.begin * blocks.C.channels * blocks.taps * plain_size;
    return {.plain = piece.plain / blocks.size * plain_size + first,
            .packed = piece.packed + rows.begin * kWordBytes,
            .filters = filters,
            .channels = piece.channels_c,
            .rows = rows.size(),
            .is_ragged = filters < rows.size() || piece.channels_c < piece.rows};
}

// How blocks are cut into strips.
struct Strips {
    std::int64_t plain_size;  // bytes of an element
    std::int64_t rows;
};

template <class Body>
void for_strips(const WeightBlocks& blocks, const Strips& cut, const Body& body) {
    const std::int64_t Cb = blocks.C.per_group();
    const bool few = blocks.count() < kFewBlocks;
    const Blocks strips{blocks.K.block, few ? kPlainStrip : cut.rows};
    const std::int64_t strip_bytes = strips.block * blocks.C.block * blocks.taps * cut.plain_size;
    const Blocks parts{Cb, std::max<std::int64_t>(kStripBytes / strip_bytes, 1)};
    parallel_for(blocks.K.count() * strips.count() * parts.count(), [&](std::int64_t task) {
        const std::int64_t strip = task / parts.count();
        const std::int64_t k = strip / strips.count();
        const Range rows = strips.at(strip % strips.count());
        const Range range = parts.at(task % parts.count());
        for (std::int64_t c = range.begin; c < range.end; ++c) {
            body(strip_at(blocks, cut.plain_size, k * Cb + c, rows));
        }
    });
}

FilterStrip filter_strip(const WeightBlocks& blocks, const Strip& it, char* plain, char* packed) {
    return {.filters = it.filters,
            .channels = it.channels,
            .taps = blocks.taps,
            .plain = plain,
            .ld_plain = blocks.C.channels * blocks.taps,
            .packed = packed,
            .ld_channels = blocks.K.block,
            .ld_tap = blocks.matrix_bytes() / kWordBytes};
}

void clear(const WeightBlocks& blocks, const Strip& it, char* packed) {
    for (std::int64_t row = 0; row < blocks.bytes() / (blocks.K.block * kWordBytes); ++row) {
        std::memset(packed + row * blocks.K.block * kWordBytes, 0,
                    static_cast<std::size_t>(it.rows * kWordBytes));
    }
}

// The weights of a depthwise shape are laid out as an image of R x S pixels.
Activations depthwise_weights(const ConvShape& shape, DType dtype) {
    return {.images = 1,
            .height = shape.R,
            .width = shape.S,
            .blocks = src_blocks(shape),
            .dtype = dtype};
}

void pack_depthwise(const ConvShape& shape, DType from, DType to, const void* plain, void* packed) {
    if (from == to) {
        pack_blocked(depthwise_weights(shape, to), plain, packed);
        return;
    }
    const std::int64_t count = shape.C * shape.R * shape.S;  // few
    const Buffer scratch((count + 1) / 2);
    auto* const rounded = reinterpret_cast<std::uint16_t*>(scratch.data());
    round_to_bf16(static_cast<const float*>(plain), rounded, count);
    pack_blocked(depthwise_weights(shape, to), rounded, packed);
}

void unpack_floats(const WeightBlocks& blocks, const void* packed, void* plain) {
    const UnpackFilters unpack_filters = unpack_filters_function(usable_isa());
    for_strips(blocks, {blocks.size, kPlainStrip}, [&](const Strip& it) {
        char* const src = const_cast<char*>(static_cast<const char*>(packed)) + it.packed;
        unpack_filters(filter_strip(blocks, it, static_cast<char*>(plain) + it.plain, src));
    });
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

}  // namespace

void pack_weights(const ConvShape& shape, DType from, DType to, const void* plain, void* packed) {
    if (shape.is_depthwise()) {
        pack_depthwise(shape, from, to, plain, packed);
        return;
    }
    const WeightBlocks blocks(shape, to, elements_per_word(to));
    const PackFilters pack_filters = pack_filters_function(usable_isa(), from, to);
    const PackFunction pack_matrix = transpose_function(usable_isa());
    for_strips(blocks, {size_of(from), kPackedStrip}, [&](const Strip& it) {
        char* const dst = static_cast<char*>(packed) + it.packed;
        const char* const src = static_cast<const char*>(plain) + it.plain;
        if (it.is_ragged) clear(blocks, it, dst);
        if (it.filters == 0 || it.channels == 0) return;
        if (blocks.taps == 1) {
            pack_matrix({.from = from,
                         .to = to,
                         .k = it.channels,
                         .n = it.filters,
                         .transposed = true,
                         .from_memory = true,
                         .src = src,
                         .ld_src = blocks.C.channels,
                         .dst = dst,
                         .ld_dst = blocks.K.block},
                        {0, it.filters});
        } else {
            pack_filters(filter_strip(blocks, it, const_cast<char*>(src), dst));
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
    } else if (dtype == DType::f32) {
        unpack_floats(WeightBlocks(shape, dtype, 1), packed, plain);
    } else {
        unpack(WeightBlocks(shape, dtype, 1), dtype, packed, plain);
    }
}

}  // namespace dlprim
