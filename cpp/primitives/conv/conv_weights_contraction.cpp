#include <algorithm>
#include <utility>

#include "primitives/conv/conv_weights_frame.h"
#include "primitives/conv/conv_weights_scratch.h"

namespace dlprim {
namespace {

// Pixels of a row when rows can have any length: enough for a long sum, few enough that the rows
// of one kernel call stay in the caches.
constexpr std::int64_t kLongRow = 256;
// Bytes of src from which it pays to gather pixels: those that an L2 cache does not hold. No size
// of this CPU's, so that the order of a sum is the same on all.
constexpr std::int64_t kWorthGathering = 1 << 20;

WeightsPassStrides scaled(const ActivationStrides& a, const ActivationStrides& b,
                          std::int64_t element) {
    const auto times = [&](const ActivationStrides& it) {
        return ActivationStrides{it.image * element, it.group * element, it.block * element,
                                 it.row * element, it.pixel * element};
    };
    return {times(a), times(b), 0};
}

std::int64_t src_bytes(const ConvProblem& problem) {
    const ConvShape& shape = problem.shape;
    return shape.N * shape.C * shape.H * shape.W * size_of(problem.dtype);
}

// The pixels of a row of diff_dst that tap s brings together with pixels of src.
Term tap_term(const ConvShape& shape, const WeightsPassStrides& strides, std::int64_t r,
              std::int64_t s) {
    const Axis axis = forward_axis(shape.W, shape.Q(),
                                   {shape.S, shape.stride_w, shape.pad_left, shape.dilation_w});
    const AxisPhase& phase = axis.phases.front();
    const Tap& tap = phase.taps[static_cast<std::size_t>(s)];
    const Range range = valid_outputs(axis, phase, tap);
    Term term{.first = true, .last = true};
    term.k = std::max<std::int64_t>(range.size(), 1);
    if (range.size() == 0) {
        term.entries_begin.assign(static_cast<std::size_t>(shape.P()) + 1, 0);
        return term;
    }
    add_row_entries(shape, r, strides,
                    {.a = (range.begin * phase.in_step + tap.offset) * strides.a.pixel,
                     .b = range.begin * strides.b.pixel},
                    term);
    return term;
}

// All taps of a filter row at once, where pixel, tap and channel are neighbours in src: rows of A
// are windows of S * C elements that slide. Pixels whose window is cut by the rim add to fewer
// rows of C.
std::vector<Term> window_terms(const ConvShape& shape, const WeightsPassStrides& strides,
                               std::int64_t r) {
    const Axis axis = forward_axis(shape.W, shape.Q(),
                                   {shape.S, shape.stride_w, shape.pad_left, shape.dilation_w});
    const AxisPhase& phase = axis.phases.front();
    std::vector<Term> terms{{.m = shape.S * shape.C, .k = 1, .first = true, .last = false}};
    terms.front().entries_begin.assign(static_cast<std::size_t>(shape.P()) + 1, 0);
    for (const Piece& piece : cover(axis, phase, Cover::disjoint)) {
        if (piece.taps.empty()) continue;
        Term term{.k = piece.outputs.size()};
        term.m = static_cast<std::int64_t>(piece.taps.size()) * shape.C;
        term.c_row = piece.taps.front().index * shape.C;
        const std::int64_t pixel = piece.outputs.begin * phase.in_step + piece.taps.front().offset;
        add_row_entries(shape, r, strides,
                        {.a = pixel * strides.a.pixel, .b = piece.outputs.begin * strides.b.pixel},
                        term);
        terms.push_back(term);
    }
    terms.back().last = true;
    return terms;
}

}  // namespace

bool has_windows(const ConvShape& shape) {
    return shape.groups == 1 && shape.S > 1 && shape.dilation_w == 1 && shape.S * shape.C <= 64;
}

void add_row_entries(const ConvShape& shape, std::int64_t r, const WeightsPassStrides& strides,
                     const RowOffsets& offsets, Term& term) {
    const Axis axis = forward_axis(shape.H, shape.P(),
                                   {shape.R, shape.stride_h, shape.pad_top, shape.dilation_h});
    const AxisPhase& phase = axis.phases.front();
    const Tap& tap = phase.taps[static_cast<std::size_t>(r)];
    const Range range = valid_outputs(axis, phase, tap);
    for (std::int64_t p = 0; p < axis.out; ++p) {
        term.entries_begin.push_back(static_cast<std::int64_t>(term.entries_a.size()));
        if (p < range.begin || p >= range.end) continue;
        term.entries_a.push_back((p * phase.in_step + tap.offset) * strides.a.row + offsets.a);
        term.entries_b.push_back(p * strides.b.row + offsets.b);
    }
    term.entries_begin.push_back(static_cast<std::int64_t>(term.entries_a.size()));
}

Contraction weights_pass_frame(DType dtype, const ConvShape& shape,
                               const WeightsPassStrides& strides, std::int64_t images) {
    const ChannelBlocks in = src_blocks(shape);
    const ChannelBlocks out = dst_blocks(shape);
    const std::int64_t tap = in.block * out.block * size_of(DType::f32);
    const std::int64_t block = shape.R * shape.S * tap;
    const std::int64_t taps = strides.tap / tap;
    Contraction made;
    made.loops = {
        {.letter = 'g',
         .extent = in.groups,
         .a = strides.a.group,
         .b = strides.b.group,
         .c = out.per_group() * in.per_group() * block},
        {.letter = 'k',
         .extent = out.per_group(),
         .b = strides.b.block,
         .c = in.per_group() * block},
        {.letter = 'c', .extent = in.per_group(), .a = strides.a.block, .c = block},
        {.letter = 't', .extent = shape.R * shape.S / taps, .c = strides.tap},
        {.letter = 'n', .extent = images, .a = strides.a.image, .b = strides.b.image, .sum = true},
        {.letter = 'p', .extent = shape.P(), .sum = true},
    };
    made.rows = {.loop = 2, .unit = in.block, .total = in.channels};
    made.columns = {.loop = 1, .unit = out.block, .total = out.channels};
    made.batch = {.loop = 4, .unit = 1, .total = images};
    made.selector_loop = 3;
    made.entry_loop = 5;
    made.dtype = dtype;
    made.trans_a = true;
    made.ldc = out.block;
    made.accumulates = true;
    made.entry_a = shape.stride_h * strides.a.row;
    made.entry_b = strides.b.row;
    made.bytes_a =
        static_cast<double>(images * strides.a.image) *
        std::min(1.0, static_cast<double>(shape.R) / static_cast<double>(shape.stride_h)) *
        std::min(1.0, static_cast<double>(shape.S) / static_cast<double>(shape.stride_w));
    made.bytes_b = static_cast<double>(images * strides.b.image);
    made.bytes_c = static_cast<double>(in.groups * out.per_group() * in.per_group() * block);
    made.flops = shape.flops();
    return made;
}

void add_weights_class(Contraction& contraction, std::vector<Term> terms) {
    contraction.selections.push_back({.block_class = static_cast<int>(contraction.classes.size())});
    contraction.classes.push_back(std::move(terms));
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
    Contraction made = problem.dtype == DType::bf16
                           ? paired_weights_contraction(problem, part.images)
                           : backward_weights_contraction(problem, part.images);
    if (part.slice == WeightsPart::kAll) return made;
    const WeightsScratch scratch = weights_scratch(problem);
    const Range range = scratch.slices.at(part.slice);
    made.loops[static_cast<std::size_t>(scratch.loop)].extent = range.size();
    for (Dimension* const dimension : {&made.rows, &made.columns}) {
        if (dimension->loop == scratch.loop) dimension->total = dimension->size(range);
    }
    return made;
}

Contraction backward_weights_contraction(const ConvProblem& problem, std::int64_t images) {
    const ConvShape shape = weights_pass_shape(problem);
    const ChannelBlocks in = src_blocks(shape);
    const ChannelBlocks out = dst_blocks(shape);
    const Format src_layout = gathers_pixels(problem) ? Format::blocked : problem.layout;
    WeightsPassStrides strides = scaled(
        activation_strides(src_layout, in, shape.H, shape.W),
        activation_strides(problem.layout, out, shape.P(), shape.Q()), size_of(problem.dtype));
    const bool windows = has_windows(shape);
    strides.tap = (windows ? shape.S : 1) * in.block * out.block * size_of(DType::f32);
    Contraction made = weights_pass_frame(problem.dtype, shape, strides, images);
    made.ldb = strides.b.pixel / size_of(problem.dtype);
    const std::int64_t lda = shape.stride_w * strides.a.pixel / size_of(problem.dtype);
    for (std::int64_t r = 0; r < shape.R; ++r) {
        if (windows) {
            add_weights_class(made, window_terms(shape, strides, r));
            continue;
        }
        for (std::int64_t s = 0; s < shape.S; ++s) {
            add_weights_class(made, {tap_term(shape, strides, r, s)});
        }
    }
    if (windows) {
        made.rows.loop = -1;
        made.block_rows = shape.S * shape.C;
        made.sliding_a = lda < made.block_rows;
    }
    for (auto& terms : made.classes) {
        for (Term& term : terms) term.lda = lda;
    }
    return made;
}

}  // namespace dlprim
