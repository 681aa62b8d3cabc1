#include <algorithm>

#include "primitives/conv/conv_contraction.h"
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
        if (same == made.first.end()) {
            made.first.push_back(pixel);
        } else {
            most = std::max(most, (pixel - *same) / pair);
        }
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

}  // namespace dlprim
