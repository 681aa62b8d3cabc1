#include <algorithm>
#include <array>
#include <limits>

#include "primitives/conv/conv_weights.h"
#include "primitives/nest/schedule_cost.h"

namespace dlprim {
namespace {

// Of the L2 cache, the part that the pairs of one band may take: they are read once for every
// block of the other tensor, beside the blocks of diff_weights. And bytes of a band of dense
// images, whose number of pixels is no size of this CPU's, so that the order of a sum follows from
// the ISA level alone.
constexpr double kShareOfCache = 0.4;
constexpr std::int64_t kDenseBand = std::int64_t{400} << 10;
// Pixels of a row when rows can have any length: enough for a long sum, few enough that the rows
// of one kernel call stay in the caches.
constexpr std::int64_t kLongRow = 256;
// Where registers are few, so that small tiles read rows again and again, as many as stay in L1.
constexpr std::int64_t kLongRowOfFewRegisters = 64;
// Bytes of src from which it pays to gather pixels: those that an L2 cache does not hold. No size
// of this CPU's, so that the order of a sum is the same on all.
constexpr std::int64_t kWorthGathering = 1 << 20;
constexpr std::int64_t kAnySize = std::numeric_limits<std::int64_t>::max();
// Rows of C in a window: more do not stay in registers.
constexpr std::int64_t kWidestWindow = 64;

bool is_pointwise(const ConvShape& shape) {
    return shape.R == 1 && shape.S == 1 && shape.pad_top == 0 && shape.pad_bottom == 0 &&
           shape.pad_left == 0 && shape.pad_right == 0 && shape.Q() > 1;
}

bool has_windows(const ConvShape& shape) {
    return shape.groups == 1 && shape.S > 1 && shape.dilation_w == 1 &&
           shape.S * shape.C <= kWidestWindow;
}

std::int64_t floor_mod(std::int64_t value, std::int64_t modulus) {
    return (value % modulus + modulus) % modulus;
}

// Taps whose pixels differ by whole pairs share a way to pair them.
void find_ways(WeightsImages& made) {
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

void find_sizes(WeightsImages& made) {
    const ConvShape& shape = made.shape;
    const ChannelBlocks in = src_blocks(shape);
    const ChannelBlocks out = dst_blocks(shape);
    const std::int64_t pair = 2 * size_of(DType::bf16);
    const auto ways = static_cast<std::int64_t>(made.first.size());
    made.columns_src = made.windows ? shape.S * shape.C : in.block;
    made.src_bytes = in.count() * ways * shape.H * made.pairs_src * made.columns_src * pair;
    made.dst_bytes = out.count() * shape.P() * made.pairs_dst * out.block * pair;
}

// Cuts images into equal bands, with the rows of src around a band in it and, of pairs, zeros for
// the padding.
void cut(WeightsImages& made, std::int64_t bands) {
    const ConvShape& whole = made.whole;
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
template <typename FindSizes>
void cut_to_fit(WeightsImages& made, std::int64_t room, FindSizes find_sizes) {
    find_sizes(made);
    for (std::int64_t bands = 2; bands <= made.whole.P(); ++bands) {
        if (made.src_bytes + made.dst_bytes <= room) break;
        if (made.whole.P() % bands != 0) continue;
        cut(made, bands);
        find_sizes(made);
    }
}

WeightsImages in_pairs(const ConvShape& whole, std::int64_t room) {
    WeightsImages made{.form = WeightsImages::Form::pairs,
                       .windows = has_windows(whole),
                       .whole = whole,
                       .shape = whole};
    find_ways(made);
    cut_to_fit(made, room, find_sizes);
    return made;
}

// Copies of src where a filter with strides leaves gaps, and of what channels-last pixels hold in
// several blocks where few registers read them again and again: pixels that are a multiple of 4 KiB
// apart share one set of the L1 cache. The latter in bands that stay in the L2 cache, or are no
// larger than the weights, which are read and written once for each.
WeightsImages in_float(const ConvProblem& problem) {
    ConvShape shape = problem.shape;
    const std::int64_t row = this_machine().few_registers() ? kLongRowOfFewRegisters : kLongRow;
    const ChannelBlocks in = src_blocks(shape);
    const ChannelBlocks out = dst_blocks(shape);
    const bool flat = problem.layout == Format::nhwc && this_machine().few_registers();
    const std::int64_t src_bytes = shape.N * shape.C * shape.H * shape.W * size_of(DType::f32);
    const bool gathers = shape.stride_w > 1 && src_bytes >= kWorthGathering;
    const bool copies_dst = flat && out.count() > 1;
    // Beside dense gradients no src has gaps.
    const bool copies_src =
        gathers || (flat && in.count() > 1) || (copies_dst && shape.stride_h * shape.stride_w > 1);
    WeightsImages made{.windows = has_windows(shape)};
    made.whole = made.shape = with_long_rows(shape, row);
    if (!is_pointwise(shape) || !(copies_src || copies_dst)) return made;
    shape.H = shape.P();
    shape.W = shape.Q();
    shape.stride_h = 1;
    shape.stride_w = 1;
    WeightsImages dense{.form = WeightsImages::Form::dense, .whole = shape, .shape = shape};
    const WeightsScratch scratch(problem);
    const std::int64_t room =
        flat ? std::min(std::max(kDenseBand, scratch.weights), scratch.room(DType::f32)) : kAnySize;
    cut_to_fit(dense, room, [&](WeightsImages& band) {
        const std::int64_t pixels = band.shape.P() * shape.Q() * size_of(DType::f32);
        if (copies_src) band.src_bytes = in.count() * in.block * pixels;
        if (copies_dst) band.dst_bytes = out.count() * out.block * pixels;
    });
    // Padded blocks of a single row may be more than an image that has none.
    if (flat && dense.src_bytes + dense.dst_bytes > scratch.room(DType::f32)) return made;
    dense.shape = with_long_rows(dense.shape, row);
    return dense;
}

}  // namespace

WeightsImages weights_images(const ConvProblem& problem) {
    const ConvShape& shape = problem.shape;
    if (problem.dtype == DType::bf16) {
        const std::int64_t scratch = WeightsScratch(problem).room(problem.dtype);
        const auto room =
            std::min(static_cast<std::int64_t>(kShareOfCache * this_machine().l2), scratch);
        WeightsImages made = in_pairs(with_long_rows(shape, kLongRow), room);
        // A single long row cannot be cut, and its last pair may be half empty.
        return made.src_bytes + made.dst_bytes <= scratch ? made : in_pairs(shape, room);
    }
    return in_float(problem);
}

WeightsScratch::WeightsScratch(const ConvProblem& problem)
    : elements(packed_weights_size(problem.shape, DType::f32)),
      weights(elements * size_of(DType::f32)) {
    const ConvShape& shape = problem.shape;
    const ChannelBlocks in = src_blocks(shape);
    const ChannelBlocks out = dst_blocks(shape);
    image = (activation_strides(problem.layout, in, shape.H, shape.W).image +
             activation_strides(problem.layout, out, shape.P(), shape.Q()).image) *
            size_of(problem.dtype);
    const std::array<std::int64_t, 3> extents = {in.groups, out.per_group(), in.per_group()};
    while (loop < 2 && extents[static_cast<std::size_t>(loop)] == 1) ++loop;
    const std::int64_t extent = extents[static_cast<std::size_t>(loop)];
    slices = {extent, weights > image ? (extent + 1) / 2 : extent};
}

std::int64_t WeightsScratch::room(DType to) const {
    const std::int64_t slice =
        slices.extent == 0 ? weights : weights / slices.extent * slices.block;
    return weights + image - (to == DType::f32 ? 0 : slice);
}

std::int64_t WeightsScratch::room_beside(std::int64_t parts, DType to) const {
    return weights + image - FixedParts(parts, elements, to).scratch_bytes();
}

WeightsDivision WeightsScratch::divided(std::int64_t images, std::int64_t packed_bytes,
                                        std::int64_t parts, DType to) const {
    WeightsDivision made{.parts = parts, .index_elements = elements, .to = to};
    made.at_once = (images + parts - 1) / parts;
    if (packed_bytes > 0) {
        // As much of them as of the weights, which are read and written once for all.
        const std::int64_t worth = 1 + weights / packed_bytes;
        const std::int64_t left = parts > 1 ? room_beside(parts, to) : room(to);
        made.at_once = std::clamp<std::int64_t>(
            made.at_once, std::min<std::int64_t>(images, 1),
            std::max<std::int64_t>(std::min(worth, left / packed_bytes), 1));
    }
    if (parts == 1 && to != DType::f32 && slices.count() > 1) {
        made.slices = slices;
        made.index_elements /= slices.extent;
    }
    return made;
}

}  // namespace dlprim
