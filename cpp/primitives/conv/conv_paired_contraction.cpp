#include <algorithm>

#include "primitives/conv/conv_weights_frame.h"
#include "primitives/conv/conv_weights_scratch.h"
#include "primitives/nest/schedule_cost.h"

namespace dlprim {
namespace {

// Of the L2 cache, the part that the pairs of one band may take: they are read once for every
// block of the other tensor, beside the blocks of diff_weights.
constexpr double kShareOfCache = 0.4;

std::int64_t floor_mod(std::int64_t value, std::int64_t modulus) {
    return (value % modulus + modulus) % modulus;
}

// Taps whose pixels differ by whole pairs share a form.
void find_forms(PairedImages& made) {
    const ConvShape& shape = made.shape;
    const std::int64_t pair = 2 * shape.stride_w;
    std::int64_t most = 0;
    for (std::int64_t s = 0; s < (made.windows ? 1 : shape.S); ++s) {
        const std::int64_t pixel = s * shape.dilation_w - shape.pad_left;
        const auto same =
            std::find_if(made.first.begin(), made.first.end(),
                         [&](std::int64_t first) { return floor_mod(pixel - first, pair) == 0; });
        made.form_of_tap.push_back(same - made.first.begin());
        if (same == made.first.end()) made.first.push_back(pixel);
        const std::int64_t first = made.first[static_cast<std::size_t>(made.form_of_tap.back())];
        made.shift_of_tap.push_back((pixel - first) / pair);
        most = std::max(most, made.shift_of_tap.back());
    }
    made.pairs_dst = (shape.Q() + 1) / 2;
    made.pairs_src = made.pairs_dst + most;
}

void find_sizes(PairedImages& made, DType dtype) {
    const ConvShape& shape = made.shape;
    const ChannelBlocks in = src_blocks(shape);
    const ChannelBlocks out = dst_blocks(shape);
    const std::int64_t pair = 2 * size_of(dtype);
    const auto forms = static_cast<std::int64_t>(made.first.size());
    made.columns_src = made.windows ? shape.S * shape.C : in.block;
    made.src_bytes = in.count() * forms * shape.H * made.pairs_src * made.columns_src * pair;
    made.dst_bytes = out.count() * shape.P() * made.pairs_dst * out.block * pair;
}

// Cuts images into equal bands, with the rows of src around a band in it and zeros for the padding.
void cut(PairedImages& made, const ConvShape& whole, std::int64_t bands) {
    const std::int64_t rows = whole.P() / bands;
    made.bands = bands;
    made.row_step = rows * whole.stride_h;
    made.first_row = -whole.pad_top;
    made.shape.N = whole.N * bands;
    made.shape.H = (rows - 1) * whole.stride_h + (whole.R - 1) * whole.dilation_h + 1;
    made.shape.pad_top = 0;
    made.shape.pad_bottom = 0;
}

// Cut until a band fits into `room`, or is a single row.
PairedImages in_bands(const ConvShape& whole, DType dtype, std::int64_t room) {
    PairedImages made{.whole = whole, .shape = whole};
    made.windows = has_windows(whole);
    find_forms(made);
    find_sizes(made, dtype);
    for (std::int64_t bands = 2; bands <= whole.P(); ++bands) {
        if (made.src_bytes + made.dst_bytes <= room) break;
        if (whole.P() % bands != 0) continue;
        cut(made, whole, bands);
        find_sizes(made, dtype);
    }
    return made;
}

// While a band is multiplied, the rows that the next one is packed from are fetched.
void fetch_rows(const ConvProblem& problem, const PairedImages& paired, Contraction& contraction) {
    const ConvShape& whole = paired.whole;
    const std::int64_t element = size_of(problem.dtype);
    const ActivationStrides src =
        activation_strides(problem.layout, src_blocks(whole), whole.H, whole.W);
    const ActivationStrides dst =
        activation_strides(problem.layout, dst_blocks(whole), whole.P(), whole.Q());
    contraction.fetches_elsewhere = true;
    contraction.fetches_only_b = whole.stride_h > 1 || whole.stride_w > 1;
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

}  // namespace

PairedImages paired_images(const ConvProblem& problem) {
    const std::int64_t scratch = weights_scratch(problem).room(problem.dtype);
    const auto room =
        std::min(static_cast<std::int64_t>(kShareOfCache * this_machine().l2), scratch);
    PairedImages made = in_bands(weights_pass_shape(problem), problem.dtype, room);
    // A single long row cannot be cut, and its last pair may be half empty.
    if (made.src_bytes + made.dst_bytes <= scratch) return made;
    return in_bands(problem.shape, problem.dtype, room);
}

Contraction paired_weights_contraction(const ConvProblem& problem, std::int64_t bands) {
    const PairedImages paired = paired_images(problem);
    const ConvShape& shape = paired.shape;
    const ChannelBlocks in = src_blocks(shape);
    const ChannelBlocks out = dst_blocks(shape);
    const std::int64_t element = size_of(problem.dtype);
    const auto forms = static_cast<std::int64_t>(paired.first.size());
    WeightsPassStrides strides;
    strides.a.pixel = paired.columns_src * 2 * element;  // of a pair
    strides.a.row = paired.pairs_src * strides.a.pixel;
    strides.a.block = forms * shape.H * strides.a.row;
    strides.a.group = in.per_group() * strides.a.block;
    strides.a.image = in.groups * strides.a.group;
    strides.b.pixel = out.block * 2 * element;
    strides.b.row = paired.pairs_dst * strides.b.pixel;
    strides.b.block = shape.P() * strides.b.row;
    strides.b.group = out.per_group() * strides.b.block;
    strides.b.image = out.groups * strides.b.group;
    const std::int64_t taps = paired.windows ? 1 : shape.S;
    strides.tap = shape.S / taps * in.block * out.block * size_of(DType::f32);
    Contraction made = weights_pass_frame(problem.dtype, shape, strides, bands);
    made.ldb = out.block;
    if (paired.windows) {
        made.rows.loop = -1;
        made.block_rows = paired.columns_src;
    }
    fetch_rows(problem, paired, made);
    for (std::int64_t r = 0; r < shape.R; ++r) {
        for (std::int64_t s = 0; s < taps; ++s) {
            const auto tap = static_cast<std::size_t>(s);
            Term term{.k = shape.Q(), .lda = paired.columns_src, .first = true, .last = true};
            const std::int64_t a = paired.form_of_tap[tap] * shape.H * strides.a.row +
                                   paired.shift_of_tap[tap] * strides.a.pixel;
            add_row_entries(shape, r, strides, {.a = a}, term);
            add_weights_class(made, {term});
        }
    }
    return made;
}

}  // namespace dlprim
