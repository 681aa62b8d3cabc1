#include "primitives/linear/linear_layout.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "jit/isa.h"
#include "primitives/tensor/pack_rows.h"
#include "primitives/tensor/parallel.h"
#include "primitives/tensor/partition.h"

namespace dlprim {
namespace {

// What a task moves: see pack.cpp.
constexpr std::int64_t kTaskBytes = 128 * 1024;

std::int64_t channels_in(const ChannelBlocks& blocks, std::int64_t index) {
    return std::min(blocks.block, blocks.channels - index * blocks.block);
}

char* at(const void* base, std::int64_t offset) {
    return static_cast<char*>(const_cast<void*>(base)) + offset;
}

// body(byte offset in packed storage, in plain storage, bytes of the channels that exist) for the
// row that every sample has in every block.
template <class Body>
void for_rows(const Activations& tensor, Format layout, const Body& body) {
    const std::int64_t rows = tensor.width, element = size_of(tensor.dtype);
    const ChannelBlocks& blocks = tensor.blocks;
    const SampleStrides packed = sample_strides(layout, rows, blocks);
    const Blocks parts{rows, 1 + kTaskBytes / (blocks.block * element)};
    parallel_for(blocks.count() * parts.count(), [&](std::int64_t task) {
        const std::int64_t block = task / parts.count();
        const Range part = parts.at(task % parts.count());
        for (std::int64_t row = part.begin; row < part.end; ++row) {
            body((block * packed.block + row * packed.sample) * element,
                 (row * blocks.channels + block * blocks.block) * element,
                 static_cast<std::size_t>(channels_in(blocks, block) * element));
        }
    });
}

// One block of one form of the weights: `depth` channels of the sum from `first_depth` on, and
// `columns` result channels.
struct WeightsBlock {
    std::int64_t first_depth;
    std::int64_t depth;
    std::int64_t first_column;
    std::int64_t columns;
    std::int64_t width;  // columns with those of the padding
    char* packed;
};

void pack_block(const LinearShape& shape, const WeightTypes& types, bool backward,
                const void* plain, const WeightsBlock& block) {
    const std::int64_t first = backward ? block.first_depth * shape.C + block.first_column
                                        : block.first_column * shape.C + block.first_depth;
    const Packing packing{.from = types.from,
                          .to = types.to,
                          .k = block.depth,
                          .n = block.columns,
                          .transposed = !backward,
                          .src = at(plain, first * size_of(types.from)),
                          .ld_src = shape.C,
                          .dst = block.packed,
                          .ld_dst = block.width};
    const Isa isa = usable_isa();
    if (backward) {
        row_functions(isa).pack(packing, {0, block.depth});
    } else {
        transpose_function(isa)(packing, {0, block.columns});
    }
}

// The form whose result channels are K (forward) or C (backward).
void pack_form(const LinearShape& shape, const WeightTypes& types, bool backward, const void* plain,
               void* packed) {
    const DType dtype = types.to;
    const ChannelBlocks in = depth_blocks(backward ? shape.K : shape.C, dtype);
    const ChannelBlocks out = linear_blocks(backward ? shape.C : shape.K);
    const std::int64_t bytes =
        rounded_up(in.block, elements_per_word(dtype)) * out.block * size_of(dtype);
    parallel_for(in.count() * out.count(), [&](std::int64_t task) {
        const std::int64_t column_block = task / in.count(), depth_block = task % in.count();
        const WeightsBlock block{.first_depth = depth_block * in.block,
                                 .depth = channels_in(in, depth_block),
                                 .first_column = column_block * out.block,
                                 .columns = channels_in(out, column_block),
                                 .width = out.block,
                                 .packed = at(packed, task * bytes)};
        if (block.depth < in.block || block.columns < out.block) {
            std::memset(block.packed, 0, static_cast<std::size_t>(bytes));
        }
        pack_block(shape, types, backward, plain, block);
    });
}

}  // namespace

namespace {

TensorForm samples_form(const std::string& name, Indices n, Indices c, DType dtype, Format format) {
    TensorForm made = plain_form(name, dtype, {n, c});
    if (format == Format::nhwc) return made;
    const ChannelBlocks blocks = linear_blocks(c.extent);
    made.packed =
        stored_layout(dtype, {n, c}, {{c.letter, blocks.count()}, n, {c.letter, blocks.block}});
    made.packed_shape = {blocks.count(), n.extent, blocks.block};
    return made;
}

// Weights whose result channels are `columns` and whose sum is over `rows`.
Layout matrices_layout(const LinearShape& shape, DType dtype, Indices rows, Indices columns) {
    const ChannelBlocks in = depth_blocks(rows.extent, dtype), out = linear_blocks(columns.extent);
    const std::int64_t word = elements_per_word(dtype);
    return stored_layout(dtype, {{'k', shape.K}, {'c', shape.C}},
                         {{columns.letter, out.count()},
                          {rows.letter, in.count()},
                          {rows.letter, in.block / word},
                          {columns.letter, out.block},
                          {rows.letter, word}});
}

TensorForm weights_form(const LinearShape& shape, const std::string& name, DType dtype,
                        bool backward) {
    const Indices C{'c', shape.C}, K{'k', shape.K};
    const ChannelBlocks in = depth_blocks(shape.C, dtype), out = linear_blocks(shape.K);
    const std::int64_t word = elements_per_word(dtype);
    TensorForm made = plain_form(name, dtype, {K, C});
    made.packed =
        backward ? matrices_layout(shape, dtype, K, C) : matrices_layout(shape, dtype, C, K);
    made.packed_shape = {1, out.count(), in.count(), in.block / word, out.block};
    if (word > 1) made.packed_shape.push_back(word);
    return made;
}

// [Cb][Kb][bk][bc]: rows of the gradient are those of plain weights.
TensorForm diff_weights_form(const LinearShape& shape, const std::string& name, DType dtype) {
    const Indices C{'c', shape.C}, K{'k', shape.K};
    const ChannelBlocks in = linear_blocks(shape.C), out = linear_blocks(shape.K);
    TensorForm made = plain_form(name, dtype, {K, C});
    made.packed = stored_layout(
        dtype, {K, C}, {{'c', in.count()}, {'k', out.count()}, {'k', out.block}, {'c', in.block}});
    made.packed_shape = {in.count(), out.count(), out.block, in.block};
    return made;
}

}  // namespace

std::vector<TensorForm> linear_forms(const LinearShape& shape, DType dtype, DType dst_dtype,
                                     Format format) {
    const Indices N{'n', shape.N}, C{'c', shape.C}, K{'k', shape.K};
    const DType weights = is_int8(dtype) ? DType::s8 : dtype;
    std::vector<TensorForm> forms = {samples_form("src", N, C, dtype, format),
                                     samples_form("diff_src", N, C, dtype, format),
                                     samples_form("dst", N, K, dst_dtype, format),
                                     samples_form("diff_dst", N, K, dst_dtype, format),
                                     weights_form(shape, "weights", weights, false),
                                     plain_form("bias", DType::f32, {K}),
                                     plain_form("scale", DType::f32, {K})};
    if (is_int8(dtype)) return forms;
    forms.push_back(weights_form(shape, "backward_weights", weights, true));
    forms.push_back(diff_weights_form(shape, "diff_weights", DType::f32));
    if (dtype == DType::bf16) {
        forms.push_back(diff_weights_form(shape, "narrow_diff_weights", dtype));
    }
    return forms;
}

Activations linear_activations(std::int64_t samples, std::int64_t channels, DType dtype) {
    return {.images = 1,
            .height = 1,
            .width = samples,
            .blocks = linear_blocks(channels),
            .dtype = dtype};
}

SampleStrides sample_strides(Format layout, std::int64_t samples, const ChannelBlocks& blocks) {
    if (layout == Format::nhwc) return {blocks.channels, blocks.block};
    return {blocks.block, samples * blocks.block};
}

void pack_samples(const Activations& tensor, Format layout, const void* plain, void* packed) {
    const bool blocked = layout == Format::blocked;
    const auto block_bytes = static_cast<std::size_t>(tensor.blocks.block * size_of(tensor.dtype));
    for_rows(tensor, layout, [&](std::int64_t to, std::int64_t from, std::size_t bytes) {
        char* const row = at(packed, to);
        std::memcpy(row, at(plain, from), bytes);
        if (blocked) std::memset(row + bytes, 0, block_bytes - bytes);
    });
}

void unpack_samples(const Activations& tensor, Format layout, const void* packed, void* plain) {
    for_rows(tensor, layout, [&](std::int64_t from, std::int64_t to, std::size_t bytes) {
        std::memcpy(at(plain, to), at(packed, from), bytes);
    });
}

std::int64_t linear_weights_size(const LinearShape& shape, DType dtype) {
    const ChannelBlocks in = depth_blocks(shape.C, dtype);
    const ChannelBlocks out = linear_blocks(shape.K);
    return in.count() * in.block * out.count() * out.block;
}

void pack_linear_weights(const LinearShape& shape, const WeightTypes& types, bool backward,
                         const void* plain, void* packed) {
    pack_form(shape, types, false, plain, packed);
    if (!backward) return;
    pack_form(shape, types, true, plain,
              at(packed, linear_weights_size(shape, types.to) * size_of(types.to)));
}

void unpack_linear_diff_weights(const LinearShape& shape, DType dtype, const void* packed,
                                void* plain) {
    const ChannelBlocks out = linear_blocks(shape.K);
    const std::int64_t element = size_of(dtype);
    // The rows of a block of C are all rows of K, those of its padding behind them.
    const ChannelBlocks in = linear_blocks(shape.C);
    const std::int64_t rows = out.count() * out.block;
    parallel_for(in.count(), [&](std::int64_t block) {
        const auto bytes = static_cast<std::size_t>(channels_in(in, block) * element);
        for (std::int64_t k = 0; k < shape.K; ++k) {
            std::memcpy(at(plain, (k * shape.C + block * in.block) * element),
                        at(packed, (block * rows + k) * in.block * element), bytes);
        }
    });
}

}  // namespace dlprim
