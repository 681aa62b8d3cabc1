#include "primitives/linear/linear_layout.h"

#include <string>

#include "primitives/tensor/quantization.h"

namespace dlprim {
namespace {

Layout blocked_samples(Indices n, Indices c, DType dtype) {
    const ChannelBlocks blocks = linear_blocks(c.extent);
    return stored_layout(dtype, {n, c}, {{c.letter, blocks.count()}, n, {c.letter, blocks.block}});
}

TensorForm samples_form(const std::string& name, Indices n, Indices c, DType dtype, Format format) {
    TensorForm made = plain_form(name, dtype, {n, c});
    if (format == Format::nhwc) return made;
    const ChannelBlocks blocks = linear_blocks(c.extent);
    made.packed = blocked_samples(n, c, dtype);
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
Layout diff_weights_layout(const LinearShape& shape, DType dtype) {
    const ChannelBlocks in = linear_blocks(shape.C), out = linear_blocks(shape.K);
    return stored_layout(
        dtype, {{'k', shape.K}, {'c', shape.C}},
        {{'c', in.count()}, {'k', out.count()}, {'k', out.block}, {'c', in.block}});
}

TensorForm diff_weights_form(const LinearShape& shape, const std::string& name, DType dtype) {
    const ChannelBlocks in = linear_blocks(shape.C), out = linear_blocks(shape.K);
    TensorForm made = plain_form(name, dtype, {{'k', shape.K}, {'c', shape.C}});
    made.packed = diff_weights_layout(shape, dtype);
    made.packed_shape = {in.count(), out.count(), out.block, in.block};
    return made;
}

}  // namespace

Layout samples_layout(Format format, std::int64_t samples, std::int64_t channels, DType dtype) {
    const Indices n{'n', samples}, c{'c', channels};
    return format == Format::nhwc ? plain_layout(dtype, {n, c}) : blocked_samples(n, c, dtype);
}

Layout linear_layout(const LinearShape& shape, Format format, std::string_view name, DType dtype) {
    const Indices n{'n', shape.N}, c{'c', shape.C}, k{'k', shape.K};
    const bool is_result = name == "dst" || name == "diff_dst";
    if (is_result || name == "src" || name == "diff_src") {
        const Indices channels = is_result ? k : c;
        return format == Format::nhwc ? plain_layout(dtype, {n, channels})
                                      : blocked_samples(n, channels, dtype);
    }
    if (name == "diff_weights") return diff_weights_layout(shape, dtype);
    return name == "weights" ? matrices_layout(shape, dtype, c, k)
                             : matrices_layout(shape, dtype, k, c);
}

std::vector<TensorForm> linear_forms(const LinearShape& shape, DType dtype, DType dst_dtype,
                                     Format format) {
    const Indices N{'n', shape.N}, C{'c', shape.C}, K{'k', shape.K};
    const DType weights = weights_type(dtype);
    std::vector<TensorForm> forms = {samples_form("src", N, C, dtype, format),
                                     samples_form("diff_src", N, C, dtype, format),
                                     samples_form("dst", N, K, dst_dtype, format),
                                     samples_form("diff_dst", N, K, dst_dtype, format),
                                     weights_form(shape, "weights", weights, false),
                                     plain_form("bias", DType::f32, {K}),
                                     plain_form("scale", DType::f32, {K})};
    if (is_int8(dtype)) {
        forms.push_back(plain_form("int_bias", DType::s32, {K}));
        return forms;
    }
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

Layout sample_pairs_layout(std::int64_t samples, std::int64_t channels, DType dtype) {
    const ChannelBlocks blocks = linear_blocks(channels);
    const std::int64_t word = elements_per_word(dtype);
    return stored_layout(dtype, {{'n', samples}, {'c', channels}},
                         {{'c', blocks.count()},
                          {'n', (samples + word - 1) / word},
                          {'c', blocks.block},
                          {'n', word}});
}

std::int64_t linear_weights_size(const LinearShape& shape, DType dtype) {
    const ChannelBlocks in = depth_blocks(shape.C, dtype);
    const ChannelBlocks out = linear_blocks(shape.K);
    return in.count() * in.block * out.count() * out.block;
}

}  // namespace dlprim
