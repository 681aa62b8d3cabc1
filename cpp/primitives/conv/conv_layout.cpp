#include "primitives/conv/conv_layout.h"

#include <array>
#include <cstring>
#include <string>

#include "primitives/tensor/parallel.h"
#include "primitives/tensor/quantization.h"

namespace dlprim {

ChannelBlocks src_blocks(const ConvShape& shape, DType dtype) {
    if (shape.is_depthwise()) return typed_channel_blocks(1, shape.C, dtype);
    return typed_channel_blocks(shape.groups, shape.group_C(), dtype);
}

ChannelBlocks dst_blocks(const ConvShape& shape, DType dtype) {
    if (shape.is_depthwise()) return typed_channel_blocks(1, shape.K, dtype);
    return typed_channel_blocks(shape.groups, shape.group_K(), dtype);
}

ChannelBlocks depth_blocks(const ConvProblem& problem) {
    ChannelBlocks made = src_blocks(problem.shape, problem.dtype);
    const bool whole = problem.layout == Format::nhwc && is_int8(problem.dtype);
    if (whole && !problem.shape.is_depthwise()) {
        made.block = depth_blocks(made.channels, problem.dtype).block;
    }
    return made;
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

ActivationStrides activation_strides(Format layout, const ChannelBlocks& blocks,
                                     std::int64_t height, std::int64_t width) {
    const bool nhwc = layout == Format::nhwc;
    const std::int64_t pixel = nhwc ? blocks.total() : blocks.block;
    const std::int64_t plane = height * width * pixel;
    const std::int64_t block = nhwc ? blocks.block : plane;
    return {.image = nhwc ? plane : plane * blocks.count(),
            .group = nhwc ? blocks.channels : plane * blocks.per_group(),
            .block = block,
            .row = width * pixel,
            .pixel = pixel};
}

namespace {

// More channels fill their pairs well enough.
constexpr std::int64_t kFewJoinedChannels = 8;

constexpr std::size_t kMostConvForms = 10;

// Of a filter row whose taps are joined.
std::int64_t joined_pairs(const ConvShape& shape) { return (shape.S * shape.C + 1) / 2; }

std::vector<Indices> weights_extents(const ConvShape& shape) {
    const ChannelBlocks K = dst_blocks(shape);
    if (shape.is_depthwise()) return {{'k', K.channels}, {'r', shape.R}, {'s', shape.S}};
    return {
        {'g', K.groups}, {'k', K.channels}, {'c', shape.group_C()}, {'r', shape.R}, {'s', shape.S}};
}

// [group][blocks of columns][blocks of rows][R][S][rows of a block][columns of a block], `word`
// neighbouring rows side by side.
Layout block_matrices(const ConvProblem& problem, bool transposed, std::int64_t word) {
    const ConvShape& shape = problem.shape;
    const ChannelBlocks C = depth_blocks(problem), K = dst_blocks(shape, problem.result());
    const char row = transposed ? 'k' : 'c', column = transposed ? 'c' : 'k';
    const ChannelBlocks& rows = transposed ? K : C;
    const ChannelBlocks& columns = transposed ? C : K;
    return stored_layout(weights_type(problem.dtype), weights_extents(shape),
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
TensorForm weights_form(const ConvProblem& problem, const std::string& name, std::int64_t word) {
    const ConvShape& shape = problem.shape;
    const ChannelBlocks C = depth_blocks(problem), K = dst_blocks(shape, problem.result());
    TensorForm made{.name = name,
                    .plain = plain_layout(weights_type(problem.dtype), weights_extents(shape)),
                    .plain_shape = {shape.K, shape.group_C(), shape.R, shape.S}};
    if (shape.is_depthwise()) {
        made.packed = weights_layout(problem);
        made.packed_shape = {C.count(), shape.R, shape.S, C.block};
        return made;
    }
    made.packed = block_matrices(problem, false, word);
    made.packed_shape = {K.count(), C.per_group(), shape.R, shape.S, (C.block + word - 1) / word,
                         K.block};
    if (word > 1) made.packed_shape.push_back(word);
    return made;
}

}  // namespace

Layout weights_layout(const ConvProblem& problem) {
    const ConvShape& shape = problem.shape;
    if (!shape.is_depthwise()) {
        return block_matrices(problem, false, elements_per_word(problem.dtype));
    }
    const ChannelBlocks K = src_blocks(shape, problem.dtype);
    return stored_layout(weights_type(problem.dtype), weights_extents(shape),
                         {{'k', K.count()}, {'r', shape.R}, {'s', shape.S}, {'k', K.block}});
}

Layout transposed_weights_layout(const ConvShape& shape, DType dtype) {
    return block_matrices({shape, dtype}, true, elements_per_word(dtype));
}

namespace {

TensorForm src_form(const ConvProblem& problem, const char* name) {
    const ConvShape& shape = problem.shape;
    const ChannelBlocks C = src_blocks(shape, problem.dtype);
    return activation_form(
        name,
        {{{'n', shape.N}, {'g', C.groups}, {'c', C.channels}, {'h', shape.H}, {'w', shape.W}}}, C,
        problem.dtype, problem.layout);
}

TensorForm dst_form(const ConvProblem& problem, const char* name) {
    const ConvShape& shape = problem.shape;
    const ChannelBlocks K = dst_blocks(shape, problem.result());
    return activation_form(
        name,
        {{{'n', shape.N}, {'g', K.groups}, {'k', K.channels}, {'p', shape.P()}, {'q', shape.Q()}}},
        K, problem.result(), problem.layout);
}

}  // namespace

TensorForm conv_form(const ConvProblem& problem, ConvOperand operand) {
    switch (operand) {
        case ConvOperand::src: return src_form(problem, "src");
        case ConvOperand::dst: return dst_form(problem, "dst");
        case ConvOperand::weights:
            return weights_form(problem, "weights", elements_per_word(problem.dtype));
        default: return weights_form({problem.shape}, "diff_weights", 1);
    }
}

std::vector<TensorForm> conv_forms(const ConvProblem& problem) {
    const ConvShape& shape = problem.shape;
    const DType dtype = problem.dtype;
    std::vector<TensorForm> forms;
    forms.reserve(kMostConvForms);
    for (const char* const name : {"src", "diff_src"}) forms.push_back(src_form(problem, name));
    for (const char* const name : {"dst", "diff_dst", "residual"}) {
        forms.push_back(dst_form(problem, name));
    }
    forms.push_back(conv_form(problem, ConvOperand::weights));
    forms.push_back(plain_form("bias", DType::f32, {{'k', shape.K}}));
    if (is_int8(dtype)) {
        forms.push_back(plain_form("scale", DType::f32, {{'k', shape.K}}));
        forms.push_back(plain_form("int_bias", DType::s32, {{'k', shape.K}}));
    } else {
        forms.push_back(conv_form(problem, ConvOperand::diff_weights));
    }
    if (dtype == DType::bf16) {
        forms.push_back(weights_form({shape, dtype}, "narrow_diff_weights", 1));
    }
    TensorForm mask{.name = "relu_mask",
                    .packed = {.dtype = DType::u8},
                    .packed_shape = form_of(forms, "dst").packed_shape};
    mask.packed_shape.back() = (mask.packed_shape.back() + 7) / 8;
    forms.push_back(mask);
    return forms;
}

std::int64_t packed_weights_size(const ConvShape& shape, DType dtype) {
    return weights_layout({shape, dtype}).elements();
}

void clear_diff_weights_padding(const ConvShape& shape, DType dtype, void* packed) {
    const ChannelBlocks C = src_blocks(shape), K = dst_blocks(shape);
    const std::int64_t row = K.block * size_of(dtype), matrices = shape.R * shape.S;
    char* dst = static_cast<char*>(packed);
    for (std::int64_t block = 0; block < K.count() * C.per_group(); ++block) {
        const std::int64_t rows = C.in_block(block % C.per_group());
        const std::int64_t columns = K.in_block(block / C.per_group() % K.per_group());
        if (rows == C.block && columns == K.block) {
            dst += matrices * C.block * row;
            continue;
        }
        for (std::int64_t i = 0; i < matrices * C.block; ++i, dst += row) {
            const std::int64_t kept = i % C.block < rows ? columns * size_of(dtype) : 0;
            std::memset(dst + kept, 0, static_cast<std::size_t>(row - kept));
        }
    }
}

bool needs_joined_weights(const ConvProblem& problem) {
    const ConvShape& shape = problem.shape;
    return problem.dtype == DType::bf16 && shape.groups == 1 && shape.C % 2 == 1 &&
           shape.C <= kFewJoinedChannels && shape.S > 1 && shape.dilation_w == 1;
}

std::int64_t joined_weights_bytes(const ConvProblem& problem) {
    const ConvShape& shape = problem.shape;
    const ChannelBlocks blocks = dst_blocks(shape);
    return blocks.count() * 2 * shape.R * joined_pairs(shape) * blocks.block * 2 *
           size_of(problem.dtype);
}

Layout joined_weights_layout(const ConvProblem& problem) {
    const ConvShape& shape = problem.shape;
    const ChannelBlocks K = dst_blocks(shape);
    const Indices g{'g', 1}, r{'r', shape.R};
    constexpr char kCopy = '2';
    Layout made =
        stored_layout(problem.dtype, {g, {'k', K.channels}, {'c', shape.C}, r, {kCopy, 2}},
                      {g,
                       {'k', K.count()},
                       {'c', 1},
                       {kCopy, 2},
                       r,
                       {'c', joined_pairs(shape)},
                       {'k', K.block},
                       {'c', 2}});
    const std::int64_t pair = 2 * K.block, copy = made.dimension(kCopy).levels.front().stride;
    // Tap s begins with element s * C, C being odd.
    made.dimensions.back() = {
        's', shape.S, {{(shape.S + 1) / 2, shape.C * pair}, {2, copy + shape.C / 2 * pair}}};
    return made;
}

void join_weights(const ConvProblem& problem, const void* packed, void* joined) {
    const ConvShape& shape = problem.shape;
    const ChannelBlocks blocks = dst_blocks(shape);
    const std::int64_t pairs = joined_pairs(shape);
    const std::int64_t tap_pairs = (shape.C + 1) / 2;
    const auto* const from = static_cast<const std::uint16_t*>(packed);
    auto* const to = static_cast<std::uint16_t*>(joined);
    parallel_for(blocks.count() * 2 * shape.R, [&](std::int64_t task) {
        const std::int64_t r = task % shape.R;
        const std::int64_t copy = task / shape.R % 2;
        const std::int64_t block = task / shape.R / 2;
        const std::uint16_t* const filter_row =
            from + (block * shape.R + r) * shape.S * tap_pairs * blocks.block * 2;
        for (std::int64_t i = 0; i < pairs * 2; ++i) {
            const std::int64_t element = i + copy;
            const std::int64_t s = element / shape.C;
            const std::int64_t c = element % shape.C;
            const std::uint16_t* const row =
                filter_row + (s * tap_pairs + c / 2) * blocks.block * 2 + c % 2;
            std::uint16_t* const out = to + (task * pairs + i / 2) * blocks.block * 2 + i % 2;
            for (std::int64_t k = 0; k < blocks.block; ++k) {
                out[2 * k] = s < shape.S ? row[2 * k] : std::uint16_t{0};
            }
        }
    });
}

}  // namespace dlprim
