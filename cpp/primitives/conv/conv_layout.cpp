#include "primitives/conv/conv_layout.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "primitives/tensor/parallel.h"
#include "primitives/tensor/partition.h"
#include "primitives/tensor/transposition.h"

namespace dlprim {
namespace {

constexpr std::int64_t kLargestBlock = 64;
// What a task moves: see pack.cpp.
constexpr std::int64_t kTaskBytes = 128 * 1024;
// Pixels of a piece are a multiple of this: a cache line of plain storage in either type.
constexpr std::int64_t kPixelStep = 32;

// Channels that go through a transposition together.
struct Part {
    std::int64_t first = 0;  // channel of the image
    std::int64_t channels = 0;
    std::int64_t padding = 0;  // channels behind them that only packed storage has
    std::int64_t packed = 0;   // where its first pixel is in a packed image, in elements
};

// A layout as parts, all of whose packed pixels are `ld` elements apart.
struct Parts {
    std::int64_t count = 0;
    std::int64_t ld = 0;
    std::int64_t image = 0;  // elements of a packed image
    Part (*at)(const Activations& activations, std::int64_t index) = nullptr;
};

std::int64_t pixels_of(const Activations& activations) {
    return activations.height * activations.width;
}

Part blocked_part(const Activations& activations, std::int64_t index) {
    const ChannelBlocks& blocks = activations.blocks;
    const std::int64_t group = index / blocks.per_group(), block = index % blocks.per_group();
    const bool last = block + 1 == blocks.per_group();
    const std::int64_t channels = last ? blocks.last() : blocks.block;
    return {.first = group * blocks.channels + block * blocks.block,
            .channels = channels,
            .padding = blocks.block - channels,
            .packed = index * pixels_of(activations) * blocks.block};
}

Parts blocked_parts(const Activations& activations) {
    const ChannelBlocks& blocks = activations.blocks;
    return {.count = blocks.count(),
            .ld = blocks.block,
            .image = blocks.count() * pixels_of(activations) * blocks.block,
            .at = blocked_part};
}

std::int64_t nhwc_count(const ChannelBlocks& blocks) {
    return std::max<std::int64_t>(blocks.total() / kLargestBlock, 1);
}

// The remainder belongs to the last part.
Part nhwc_part(const Activations& activations, std::int64_t index) {
    const std::int64_t first = index * kLargestBlock;
    const bool last = index + 1 == nhwc_count(activations.blocks);
    return {.first = first,
            .channels = last ? activations.blocks.total() - first : kLargestBlock,
            .packed = first};
}

Parts nhwc_parts(const Activations& activations) {
    const std::int64_t channels = activations.blocks.total();
    return {.count = nhwc_count(activations.blocks),
            .ld = channels,
            .image = channels * pixels_of(activations),
            .at = nhwc_part};
}

// Some pixels of a part, as they are in both storages.
struct Piece {
    std::int64_t plain = 0;  // offsets of the first element
    std::int64_t packed = 0;
    std::int64_t pixels = 0;
    std::int64_t channels = 0;
    std::int64_t padding = 0;
};

template <class Body>
void for_pieces(const Activations& activations, const Parts& parts, const Body& body) {
    const std::int64_t pixels = pixels_of(activations), channels = activations.blocks.total();
    const std::int64_t pixel_bytes = std::min(channels, kLargestBlock) * size_of(activations.dtype);
    const std::int64_t steps = std::max<std::int64_t>(kTaskBytes / pixel_bytes / kPixelStep, 1);
    const Blocks chunks{pixels, steps * kPixelStep};
    // Small parts go to a task by the dozen.
    const std::int64_t part_bytes = std::max<std::int64_t>(pixels * pixel_bytes, 1);
    const std::int64_t several = chunks.count() > 1 ? 1 : 1 + kTaskBytes / part_bytes;
    const Blocks tasks{activations.images * parts.count * chunks.count(), several};
    parallel_for(tasks.count(), [&](std::int64_t task) {
        const Range range = tasks.at(task);
        for (std::int64_t i = range.begin; i < range.end; ++i) {
            const Range chunk = chunks.at(i % chunks.count());
            const std::int64_t image = i / chunks.count() / parts.count;
            const Part part = parts.at(activations, i / chunks.count() % parts.count);
            body(Piece{.plain = (image * channels + part.first) * pixels + chunk.begin,
                       .packed = image * parts.image + part.packed + chunk.begin * parts.ld,
                       .pixels = chunk.size(),
                       .channels = part.channels,
                       .padding = part.padding});
        }
    });
}

void pack(const Activations& activations, const Parts& parts, const void* plain, void* packed) {
    const std::int64_t size = size_of(activations.dtype), ld = parts.ld;
    for_pieces(activations, parts, [&](const Piece& piece) {
        char* const dst = static_cast<char*>(packed) + piece.packed * size;
        transpose(activations.dtype, {.src = static_cast<const char*>(plain) + piece.plain * size,
                                      .ld_src = pixels_of(activations),
                                      .rows = piece.channels,
                                      .columns = piece.pixels,
                                      .dst = dst,
                                      .ld_dst = ld});
        if (piece.padding == 0) return;
        for (std::int64_t pixel = 0; pixel < piece.pixels; ++pixel) {
            std::memset(dst + (pixel * ld + piece.channels) * size, 0,
                        static_cast<std::size_t>(piece.padding * size));
        }
    });
}

void unpack(const Activations& activations, const Parts& parts, const void* packed, void* plain) {
    const std::int64_t size = size_of(activations.dtype);
    for_pieces(activations, parts, [&](const Piece& piece) {
        transpose(activations.dtype, {.src = static_cast<const char*>(packed) + piece.packed * size,
                                      .ld_src = parts.ld,
                                      .rows = piece.pixels,
                                      .columns = piece.channels,
                                      .dst = static_cast<char*>(plain) + piece.plain * size,
                                      .ld_dst = pixels_of(activations)});
    });
}

}  // namespace

ChannelBlocks src_blocks(const ConvShape& shape) {
    if (shape.is_depthwise()) return channel_blocks(1, shape.C);
    return channel_blocks(shape.groups, shape.group_C());
}

ChannelBlocks dst_blocks(const ConvShape& shape) {
    if (shape.is_depthwise()) return channel_blocks(1, shape.K);
    return channel_blocks(shape.groups, shape.group_K());
}

TensorForm activation_form(const std::string& name, const std::array<Indices, 5>& it,
                           const ChannelBlocks& blocks, DType dtype, Format format) {
    const auto [n, g, c, h, w] = it;
    const std::vector<Indices> extents(it.begin(), it.end());
    TensorForm made{.name = name,
                    .plain = plain_layout(dtype, extents),
                    .plain_shape = {n.extent, blocks.total(), h.extent, w.extent}};
    if (format == Format::nhwc) {
        made.packed = stored_layout(dtype, extents, {n, h, w, g, c});
        made.packed_shape = {n.extent, h.extent, w.extent, blocks.total()};
    } else {
        made.packed = stored_layout(
            dtype, extents, {n, g, {c.letter, blocks.per_group()}, h, w, {c.letter, blocks.block}});
        made.packed_shape = {n.extent, blocks.count(), h.extent, w.extent, blocks.block};
    }
    return made;
}

namespace {

std::vector<Indices> weights_extents(const ConvShape& shape) {
    const ChannelBlocks K = dst_blocks(shape);
    if (shape.is_depthwise()) return {{'k', K.channels}, {'r', shape.R}, {'s', shape.S}};
    return {
        {'g', K.groups}, {'k', K.channels}, {'c', shape.group_C()}, {'r', shape.R}, {'s', shape.S}};
}

// [group][blocks of columns][blocks of rows][R][S][rows of a block][columns of a block], `word`
// neighbouring rows side by side.
Layout block_matrices(const ConvShape& shape, DType dtype, bool transposed, std::int64_t word) {
    const ChannelBlocks C = src_blocks(shape), K = dst_blocks(shape);
    const char row = transposed ? 'k' : 'c', column = transposed ? 'c' : 'k';
    const ChannelBlocks& rows = transposed ? K : C;
    const ChannelBlocks& columns = transposed ? C : K;
    return stored_layout(dtype, weights_extents(shape),
                         {{'g', K.groups},
                          {column, columns.per_group()},
                          {row, rows.per_group()},
                          {'r', shape.R},
                          {'s', shape.S},
                          {row, (rows.block + word - 1) / word},
                          {column, columns.block},
                          {row, word}});
}

// Of weights as packed, in pairs where they are of bfloat16, or of their gradients.
TensorForm weights_form(const ConvShape& shape, const std::string& name, DType dtype,
                        std::int64_t word) {
    const ChannelBlocks C = src_blocks(shape), K = dst_blocks(shape);
    TensorForm made{.name = name,
                    .plain = plain_layout(dtype, weights_extents(shape)),
                    .plain_shape = {shape.K, shape.group_C(), shape.R, shape.S}};
    if (shape.is_depthwise()) {
        made.packed = weights_layout(shape, dtype);
        made.packed_shape = {K.count(), shape.R, shape.S, K.block};
        return made;
    }
    made.packed = block_matrices(shape, dtype, false, word);
    made.packed_shape = {K.count(), C.per_group(), shape.R, shape.S, (C.block + word - 1) / word,
                         K.block};
    if (word > 1) made.packed_shape.push_back(word);
    return made;
}

}  // namespace

Layout weights_layout(const ConvShape& shape, DType dtype) {
    if (!shape.is_depthwise()) {
        return block_matrices(shape, dtype, false, elements_per_word(dtype));
    }
    const ChannelBlocks K = dst_blocks(shape);
    return stored_layout(dtype, weights_extents(shape),
                         {{'k', K.count()}, {'r', shape.R}, {'s', shape.S}, {'k', K.block}});
}

Layout transposed_weights_layout(const ConvShape& shape, DType dtype) {
    return block_matrices(shape, dtype, true, elements_per_word(dtype));
}

std::vector<TensorForm> conv_forms(const ConvShape& shape, DType dtype, Format format) {
    const ChannelBlocks C = src_blocks(shape), K = dst_blocks(shape);
    const std::array<Indices, 5> src{
        {{'n', shape.N}, {'g', C.groups}, {'c', C.channels}, {'h', shape.H}, {'w', shape.W}}};
    const std::array<Indices, 5> dst{
        {{'n', shape.N}, {'g', K.groups}, {'k', K.channels}, {'p', shape.P()}, {'q', shape.Q()}}};
    std::vector<TensorForm> forms;
    for (const char* const name : {"src", "diff_src"}) {
        forms.push_back(activation_form(name, src, C, dtype, format));
    }
    for (const char* const name : {"dst", "diff_dst", "residual"}) {
        forms.push_back(activation_form(name, dst, K, dtype, format));
    }
    forms.push_back(weights_form(shape, "weights", dtype, elements_per_word(dtype)));
    forms.push_back(weights_form(shape, "diff_weights", DType::f32, 1));
    if (dtype == DType::bf16) {
        forms.push_back(weights_form(shape, "narrow_diff_weights", dtype, 1));
    }
    forms.push_back(plain_form("bias", DType::f32, {{'k', shape.K}}));
    TensorForm mask{.name = "relu_mask",
                    .packed = {.dtype = DType::u8},
                    .packed_shape = form_of(forms, "dst").packed_shape};
    mask.packed_shape.back() = (mask.packed_shape.back() + 7) / 8;
    forms.push_back(mask);
    return forms;
}

void pack_blocked(const Activations& activations, const void* plain, void* packed) {
    pack(activations, blocked_parts(activations), plain, packed);
}

void unpack_blocked(const Activations& activations, const void* packed, void* plain) {
    unpack(activations, blocked_parts(activations), packed, plain);
}

void pack_nhwc(const Activations& activations, const void* plain, void* packed) {
    pack(activations, nhwc_parts(activations), plain, packed);
}

void unpack_nhwc(const Activations& activations, const void* packed, void* plain) {
    unpack(activations, nhwc_parts(activations), packed, plain);
}

}  // namespace dlprim
