// The backward-weights pass: on operands in place and, in bfloat16, on packed pairs of pixels,
// which are another layout of src.
#include <algorithm>

#include "primitives/conv/conv_weights.h"
#include "primitives/nest/contraction_builder.h"

namespace dlprim {
namespace {

// Of all taps of a filter row at once where these are `windows`.
Mapping mapping_of(bool windows) {
    return {.loops = "gkctnp",
            .rows = windows ? "sc" : "c",
            .columns = "k",
            .depth = "q",
            .shifts = windows ? "r" : "rs",
            .batch = 'n',
            .transposed_a = true};
}

Contraction in_place(const ConvProblem& problem, const WeightsImages& it, std::int64_t images) {
    ConvShape shape = it.shape;
    shape.N = images;
    ConvImages tensors(problem, shape);
    const ConvImages copies({shape, problem.dtype, Format::blocked}, shape);
    if (it.src_bytes > 0) tensors.src = copies.src;
    if (it.dst_bytes > 0) tensors.dst = copies.dst;
    return contraction_from(
        parse_product("weights(g,k,c,r,s) += src?(n,g,c,u*p+d*r-t,v*q+e*s-l) * dst(n,g,k,p,q)",
                      geometry(shape)),
        {.c = weights_layout({shape}), .a = tensors.src, .b = tensors.dst}, mapping_of(it.windows));
}

// While a band is multiplied, the rows that the next one is packed from are fetched.
void fetch_rows(const ConvProblem& problem, const WeightsImages& paired, Contraction& contraction) {
    const ConvShape& whole = paired.whole;
    const std::int64_t element = size_of(problem.dtype);
    const ActivationStrides src =
        activation_strides(problem.layout, src_blocks(whole), whole.H, whole.W);
    const ActivationStrides dst =
        activation_strides(problem.layout, dst_blocks(whole), whole.P(), whole.Q());
    contraction.fetching.elsewhere = true;
    contraction.fetching.only_b = whole.stride_h > 1 || whole.stride_w > 1;
    for (ContractionLoop& loop : contraction.loops) {
        if (loop.letter == 'g') {
            loop.ahead_a = src.group * element;
            loop.ahead_b = dst.group * element;
        } else if (loop.letter == 'c') {
            loop.ahead_a = src.block * element;
        } else if (loop.letter == 'k') {
            loop.ahead_b = dst.block * element;
        } else if (loop.letter == 'n') {
            const bool cut = paired.bands > 1;
            loop.ahead_a = (cut ? paired.row_step * src.row : src.image) * element;
            loop.ahead_b = (cut ? paired.shape.P() * dst.row : dst.image) * element;
        }
    }
}

// [band][block][way][row][pairs][block][2], or [band][row][pairs][S * C][2] of windows.
Layout src_pairs_layout(const WeightsImages& paired, Indices bands) {
    const ConvShape& shape = paired.shape;
    const ChannelBlocks C = src_blocks(shape);
    const auto ways = static_cast<std::int64_t>(paired.first.size());
    const Indices g{'g', C.groups}, h{'h', shape.H}, s{'s', shape.S}, q{'q', paired.pairs_src};
    const std::vector<Indices> extents = {bands, g, {'c', C.channels}, h, s, {'q', shape.Q()}};
    if (paired.windows) {
        return stored_layout(DType::bf16, extents,
                             {bands, g, h, q, s, {'c', C.channels}, {'q', 2}});
    }
    Layout made = stored_layout(
        DType::bf16, extents,
        {bands, g, {'c', C.per_group()}, {'s', ways}, h, q, {'c', C.block}, {'q', 2}});
    // Taps beyond the first ways have the same ones again, some pairs further on.
    const std::int64_t later = (shape.S + ways - 1) / ways;
    const std::int64_t pairs = later > 1 ? ways * shape.dilation_w / (2 * shape.stride_w) : 0;
    std::vector<DimensionLevel>& levels = made.dimensions[4].levels;
    levels.insert(levels.begin(), {later, pairs * 2 * C.block});
    return made;
}

// [band][block][row][pairs][block][2]
Layout dst_pairs_layout(const WeightsImages& paired, Indices bands) {
    const ConvShape& shape = paired.shape;
    const ChannelBlocks K = dst_blocks(shape);
    const Indices g{'g', K.groups}, p{'p', shape.P()};
    return stored_layout(
        DType::bf16, {bands, g, {'k', K.channels}, p, {'q', shape.Q()}},
        {bands, g, {'k', K.per_group()}, p, {'q', paired.pairs_dst}, {'k', K.block}, {'q', 2}});
}

Contraction in_pairs(const ConvProblem& problem, const WeightsImages& paired, std::int64_t bands) {
    const ConvShape& shape = paired.shape;
    Contraction made = contraction_from(
        parse_product("weights(g,k,c,r,s) += pairs?(n,g,c,u*p+d*r-t,s,q) * dst(n,g,k,p,q)",
                      geometry(shape)),
        {.c = weights_layout({shape}),
         .a = src_pairs_layout(paired, {'n', bands}),
         .b = dst_pairs_layout(paired, {'n', bands})},
        mapping_of(paired.windows));
    const auto part = [](std::int64_t taps, std::int64_t stride) {
        return std::min(1.0, static_cast<double>(taps) / static_cast<double>(stride));
    };
    made.bytes_a = static_cast<double>(bands * paired.src_bytes) * part(shape.R, shape.stride_h) *
                   part(shape.S, shape.stride_w);
    made.bytes_b = static_cast<double>(bands * paired.dst_bytes);
    fetch_rows(problem, paired, made);
    return made;
}

}  // namespace

Contraction weights_contraction(const ConvProblem& problem, const WeightsPart& part) {
    const WeightsImages images = weights_images(problem);
    Contraction made = images.form == WeightsImages::Form::pairs
                           ? in_pairs(problem, images, part.images)
                           : in_place(problem, images, part.images);
    made.flops = problem.shape.flops();  // of the pass: schedules are for all of its parts
    if (part.slice == WeightsPart::kAll) return made;
    const WeightsScratch scratch(problem);
    const Range range = scratch.slices.at(part.slice);
    made.loops[static_cast<std::size_t>(scratch.loop)].extent = range.size();
    for (Dimension* const dimension : {&made.rows, &made.columns}) {
        if (dimension->loop == scratch.loop) dimension->total = dimension->size(range);
    }
    return made;
}

}  // namespace dlprim
