#include "primitives/conv/conv_contraction.h"

#include <algorithm>
#include <limits>

#include "primitives/nest/contraction_builder.h"
#include "primitives/nest/schedule_cost.h"

namespace dlprim {
namespace {

constexpr std::int64_t kAnyLength = std::numeric_limits<std::int64_t>::max();
// From this many input channels on, a sum is long enough to be taken up again for the taps that
// miss the rim of a row.
constexpr std::int64_t kChannelsToOverlap = 32;
// Up to this many channels, windows use vectors better than single pixels do.
constexpr std::int64_t kFewChannels = 8;

Cover cover_of(const ChannelBlocks& in) {
    return in.channels >= kChannelsToOverlap ? Cover::overlapping : Cover::disjoint;
}

// Of 8-bit images nothing is left out.
Cover cover_of(const ConvProblem& problem, const ChannelBlocks& in) {
    return is_int8(problem.dtype) ? Cover::disjoint : cover_of(in);
}

// 8-bit blocks as they are stored: what follows the last channel meets weights of zero.
ConvShape with_whole_blocks(const ConvProblem& problem, ConvShape shape) {
    if (!is_int8(problem.dtype) || problem.layout == Format::nhwc) return shape;
    const ChannelBlocks in = src_blocks(shape, problem.dtype);
    shape.C = in.count() * in.block;
    return shape;
}

// Neighbouring taps are one long row where a pixel has no other channels and weights no padding in
// between.
bool joins_taps(const ConvProblem& problem, const ChannelBlocks& in) {
    if (needs_joined_weights(problem)) return true;
    return in.count() == 1 && cover_of(problem, in) == Cover::disjoint &&
           in.channels % elements_per_word(problem.dtype) == 0;
}

Contraction data_contraction(const ConvProblem& problem, const ConvShape& shape,
                             const Layout& weights, const Mapping& mapping) {
    const ConvImages images(problem, shape);
    return contraction_from(
        parse_product(
            "diff_src?(n,g,c,u*p+d*r-t,v*q+e*s-l) +=! diff_dst(n,g,k,p,q) * weights(g,k,c,r,s)",
            geometry(shape)),
        {.c = images.src, .a = images.dst, .b = weights}, mapping);
}

}  // namespace

ConvImages::ConvImages(const ConvProblem& problem, const ConvShape& shape) {
    const ConvProblem it{shape, problem.dtype, problem.layout, problem.dst_dtype};
    src = conv_form(it, ConvOperand::src).packed;
    dst = conv_form(it, ConvOperand::dst).packed;
}

Constants geometry(const ConvShape& shape) {
    return {{"u", shape.stride_h},   {"v", shape.stride_w}, {"d", shape.dilation_h},
            {"e", shape.dilation_w}, {"t", shape.pad_top},  {"l", shape.pad_left}};
}

ConvShape with_long_rows(const ConvShape& shape, std::int64_t most_pixels) {
    const bool pointwise = shape.R == 1 && shape.S == 1 && shape.stride_h == 1 &&
                           shape.stride_w == 1 && shape.H == shape.P() && shape.W == shape.Q();
    if (!pointwise || shape.pad_top != 0 || shape.pad_left != 0) return shape;
    ConvShape longer = shape;
    const std::int64_t pixels = shape.H * shape.W;
    longer.W = std::max(std::min(pixels, most_pixels), shape.W);
    while (longer.W > shape.W && pixels % longer.W != 0) --longer.W;
    if (longer.W > 0) longer.H = pixels / longer.W;
    return longer;
}

Contraction forward_contraction(ConvProblem problem, const Epilogue& epilogue) {
    problem.shape = with_whole_blocks(problem, with_long_rows(problem.shape, kAnyLength));
    const ConvShape& shape = problem.shape;
    const ConvImages images(problem, shape);
    const ChannelBlocks in = depth_blocks(problem);
    Contraction made = contraction_from(
        parse_product("dst(n,g,k,p,q) +=! src?(n,g,c,u*p+d*r-t,v*q+e*s-l) * weights(g,k,c,r,s)",
                      geometry(shape)),
        {.c = images.dst,
         .a = images.src,
         .b = needs_joined_weights(problem) ? joined_weights_layout(problem)
                                            : weights_layout(problem)},
        {.loops = "gnkcpq",
         .rows = "q",
         .columns = "k",
         .depth = joins_taps(problem, in) ? "sc" : "c",
         .cover = cover_of(problem, in),
         .bias = "gk"});
    made.epilogue = epilogue;
    fetch_far_weights(made);
    return made;
}

Contraction backward_data_contraction(const ConvProblem& problem) {
    const ConvShape shape = with_long_rows(problem.shape, kAnyLength);
    return data_contraction(problem, shape, transposed_weights_layout(shape, problem.dtype),
                            {.loops = "gnckpq",
                             .rows = "q",
                             .columns = "c",
                             .depth = "k",
                             .cover = cover_of(dst_blocks(shape))});
}

bool has_cells(const ConvProblem& problem) {
    const ConvShape& shape = problem.shape;
    const ChannelBlocks in = dst_blocks(shape);
    const ChannelBlocks out = src_blocks(shape);
    const std::int64_t element = size_of(problem.dtype);
    const ActivationStrides c = activation_strides(problem.layout, out, shape.H, shape.W);
    const bool pointwise = shape.R == 1 && shape.S == 1 && shape.pad_top == 0 &&
                           shape.pad_left == 0 && shape.P() * shape.stride_h == shape.H &&
                           shape.Q() * shape.stride_w == shape.W;
    const bool strided = shape.stride_w > 1;  // else rows can be cut, which is another nest
    const bool aligned = c.pixel * element % 64 == 0 && out.block * element % 64 == 0 &&
                         out.last() * element % 64 == 0 && out.channels * element % 64 == 0;
    const bool whole = problem.dtype == DType::f32 || in.channels % in.block == 0;
    const bool large = static_cast<double>(shape.N * c.image * element) > this_machine().l2;
    return pointwise && strided && aligned && whole && large;
}

Contraction cell_data_contraction(const ConvProblem& problem) {
    const ConvShape& shape = problem.shape;
    const ConvImages images(problem, shape);
    Contraction made = contraction_from(
        parse_product("diff_src(n,g,c,u*p,v*q) +=! diff_dst(n,g,k,p,q) * weights(g,k,c,0,0)",
                      geometry(shape)),
        {.c = images.src, .a = images.dst, .b = transposed_weights_layout(shape, problem.dtype)},
        {.loops = "gnckp", .rows = "q", .columns = "c", .depth = "k"});
    made.gaps = {.rows = static_cast<int>(shape.stride_w) - 1,
                 .planes = static_cast<int>(shape.stride_h) - 1};
    made.gap_stride = images.src.dimension('h').levels.front().stride * size_of(problem.dtype);
    return made;
}

bool prefers_windows(const ConvProblem& problem) {
    const ConvShape& shape = problem.shape;
    return shape.groups == 1 && shape.C <= kFewChannels && shape.S > 1 && shape.dilation_w == 1;
}

Layout window_weights_layout(const ConvProblem& problem) {
    const ConvShape& shape = problem.shape;
    const ChannelBlocks K = dst_blocks(shape);
    const std::int64_t word = elements_per_word(problem.dtype);
    const Indices g{'g', 1}, r{'r', shape.R}, s{'s', shape.S}, c{'c', shape.C};
    return stored_layout(
        problem.dtype, {g, {'k', K.channels}, c, r, s},
        {g, {'k', K.count()}, r, {'k', rounded_up(K.block, word) / word}, s, c, {'k', word}});
}

Contraction window_data_contraction(const ConvProblem& problem) {
    return data_contraction(problem, problem.shape, window_weights_layout(problem),
                            {.loops = "nckp", .rows = "q", .columns = "sc", .depth = "k"});
}

}  // namespace dlprim
