// The weights' part of conv_layout.h but for packing (conv_weights_packing.cpp): sizes, padding,
// and the form for the backward-data pass.
#include <cstring>

#include "primitives/conv/conv_layout.h"
#include "primitives/conv/conv_weights_blocks.h"
#include "primitives/tensor/parallel.h"
#include "primitives/tensor/partition.h"
#include "primitives/tensor/transposition.h"

namespace dlprim {
namespace {

// What a task moves: see pack.cpp.
constexpr std::int64_t kTaskBytes = 128 * 1024;

}  // namespace

std::int64_t packed_weights_size(const ConvShape& shape, DType dtype) {
    const ChannelBlocks C = src_blocks(shape), K = dst_blocks(shape);
    if (shape.is_depthwise()) return C.count() * shape.R * shape.S * C.block;
    return K.count() * C.per_group() * shape.R * shape.S *
           rounded_up(C.block, elements_per_word(dtype)) * K.block;
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
