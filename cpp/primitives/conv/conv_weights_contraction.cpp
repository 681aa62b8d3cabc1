// The backward-weights pass: on operands in place and, in bfloat16, on packed pairs of pixels,
// which are another layout of src (conv_pairs.h).
#include <algorithm>

#include "primitives/conv/conv_statement.h"
#include "primitives/conv/conv_weights_scratch.h"
#include "primitives/nest/contraction_builder.h"

namespace dlprim {
namespace {

// Pixels of a row when rows can have any length: enough for a long sum, few enough that the rows
// of one kernel call stay in the caches.
constexpr std::int64_t kLongRow = 256;
// Bytes of src from which it pays to gather pixels: those that an L2 cache does not hold. No size
// of this CPU's, so that the order of a sum is the same on all.
constexpr std::int64_t kWorthGathering = 1 << 20;
// Rows of C in a window: more do not stay in registers.
constexpr std::int64_t kWidestWindow = 64;

std::int64_t src_bytes(const ConvProblem& problem) {
    const ConvShape& shape = problem.shape;
    return shape.N * shape.C * shape.H * shape.W * size_of(problem.dtype);
}

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

Contraction in_place(const ConvProblem& problem, std::int64_t images) {
    ConvShape shape = weights_pass_shape(problem);
    shape.N = images;
    ConvImages tensors(problem, shape);
    if (gathers_pixels(problem)) {
        tensors.src = ConvImages({shape, problem.dtype, Format::blocked}, shape).src;
    }
    return contraction_from(
        parse_statement("weights(g,k,c,r,s) += src?(n,g,c,u*p+d*r-t,v*q+e*s-l) * dst(n,g,k,p,q)",
                        geometry(shape)),
        {.c = weights_layout(shape, DType::f32), .a = tensors.src, .b = tensors.dst},
        mapping_of(has_windows(shape)));
}

// While a band is multiplied, the rows that the next one is packed from are fetched.
void fetch_rows(const ConvProblem& problem, const PairedImages& paired, Contraction& contraction) {
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

// [band][block][form][row][pairs][block][2], or [band][row][pairs][S * C][2] of windows.
Layout src_pairs_layout(const PairedImages& paired, Indices bands) {
    const ConvShape& shape = paired.shape;
    const ChannelBlocks C = src_blocks(shape);
    const auto forms = static_cast<std::int64_t>(paired.first.size());
    const Indices g{'g', C.groups}, h{'h', shape.H}, s{'s', shape.S}, q{'q', paired.pairs_src};
    const std::vector<Indices> extents = {bands, g, {'c', C.channels}, h, s, {'q', shape.Q()}};
    if (paired.windows) {
        return stored_layout(DType::bf16, extents,
                             {bands, g, h, q, s, {'c', C.channels}, {'q', 2}});
    }
    Layout made = stored_layout(
        DType::bf16, extents,
        {bands, g, {'c', C.per_group()}, {'s', forms}, h, q, {'c', C.block}, {'q', 2}});
    // Taps beyond the first forms have the same ones again, some pairs further on.
    const std::int64_t later = (shape.S + forms - 1) / forms;
    const std::int64_t pairs = later > 1 ? forms * shape.dilation_w / (2 * shape.stride_w) : 0;
    std::vector<DimensionLevel>& levels = made.dimensions[4].levels;
    levels.insert(levels.begin(), {later, pairs * 2 * C.block});
    return made;
}

// [band][block][row][pairs][block][2]
Layout dst_pairs_layout(const PairedImages& paired, Indices bands) {
    const ConvShape& shape = paired.shape;
    const ChannelBlocks K = dst_blocks(shape);
    const Indices g{'g', K.groups}, p{'p', shape.P()};
    return stored_layout(
        DType::bf16, {bands, g, {'k', K.channels}, p, {'q', shape.Q()}},
        {bands, g, {'k', K.per_group()}, p, {'q', paired.pairs_dst}, {'k', K.block}, {'q', 2}});
}

Contraction in_pairs(const ConvProblem& problem, std::int64_t bands) {
    const PairedImages paired = paired_images(problem);
    const ConvShape& shape = paired.shape;
    Contraction made = contraction_from(
        parse_statement("weights(g,k,c,r,s) += pairs?(n,g,c,u*p+d*r-t,s,q) * dst(n,g,k,p,q)",
                        geometry(shape)),
        {.c = weights_layout(shape, DType::f32),
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

bool has_windows(const ConvShape& shape) {
    return shape.groups == 1 && shape.S > 1 && shape.dilation_w == 1 &&
           shape.S * shape.C <= kWidestWindow;
}

bool gathers_pixels(const ConvProblem& problem) {
    const ConvShape& shape = problem.shape;
    const bool pointwise = shape.R == 1 && shape.S == 1 && shape.pad_top == 0 &&
                           shape.pad_bottom == 0 && shape.pad_left == 0 && shape.pad_right == 0;
    return problem.dtype == DType::f32 && pointwise && shape.stride_w > 1 && shape.Q() > 1 &&
           src_bytes(problem) >= kWorthGathering;
}

ConvShape weights_pass_shape(const ConvProblem& problem) {
    ConvShape shape = problem.shape;
    if (gathers_pixels(problem)) {
        shape.H = shape.P();
        shape.W = shape.Q();
        shape.stride_h = 1;
        shape.stride_w = 1;
    }
    return with_long_rows(shape, kLongRow);
}

Contraction weights_contraction(const ConvProblem& problem, const WeightsPart& part) {
    Contraction made = problem.dtype == DType::bf16 ? in_pairs(problem, part.images)
                                                    : in_place(problem, part.images);
    made.flops = problem.shape.flops();  // of the pass: schedules are for all of its parts
    if (part.slice == WeightsPart::kAll) return made;
    const WeightsScratch scratch = weights_scratch(problem);
    const Range range = scratch.slices.at(part.slice);
    made.loops[static_cast<std::size_t>(scratch.loop)].extent = range.size();
    for (Dimension* const dimension : {&made.rows, &made.columns}) {
        if (dimension->loop == scratch.loop) dimension->total = dimension->size(range);
    }
    return made;
}

}  // namespace dlprim
