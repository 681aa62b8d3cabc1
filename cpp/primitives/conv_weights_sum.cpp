#include "primitives/conv_weights_sum.h"

#include <algorithm>
#include <cstring>

#include "brgemm/isa.h"
#include "primitives/pack_rows.h"
#include "primitives/parallel.h"

namespace dlprim {
namespace {

// With this many blocks of diff_weights threads share the blocks, with fewer the minibatch.
constexpr std::int64_t kManyBlocks = 32;
constexpr std::int64_t kMostParts = 8;
// Elements of diff_weights that are combined at a time.
constexpr std::int64_t kElementsAtOnce = 4096;

std::int64_t aligned(std::int64_t bytes) { return (bytes + 63) / 64 * 64; }

ConvProblem problem_of(const Conv2d& conv) {
    return {conv.spec().shape, conv.spec().dtype, conv.spec().layout};
}

}  // namespace

WeightsSum::WeightsSum(const Conv2d& conv)
    : conv_(conv),
      pairs_(conv.spec().dtype == DType::bf16),
      paired_(pairs_ ? paired_images(problem_of(conv)) : PairedImages{}),
      shape_(pairs_ ? paired_.shape : weights_pass_shape(conv.spec().shape)) {
    const ChannelBlocks in = src_blocks(shape_);
    const ChannelBlocks out = dst_blocks(shape_);
    const std::int64_t taps = shape_.R * shape_.S;
    elements_ = out.count() * in.per_group() * taps * in.block * out.block;
    const std::int64_t weights = elements_ * size_of(DType::f32);
    const ConvShape& whole = conv.spec().shape;
    const std::int64_t image = (in.count() * in.block * whole.H * whole.W +
                                out.count() * out.block * whole.P() * whole.Q()) *
                               size_of(conv.spec().dtype);
    if (pairs_) packer_.emplace(problem_of(conv), paired_);
    if (out.count() * in.per_group() * taps < kManyBlocks) {
        const std::int64_t packed = pairs_ ? paired_.src_bytes + paired_.dst_bytes : 0;
        const std::int64_t room =
            (elements_ * size_of(conv.spec().dtype) + image - packed) / weights;
        parts_ = std::clamp<std::int64_t>(std::min(shape_.N, room), 1, kMostParts);
    }
    images_ = (shape_.N + parts_ - 1) / parts_;
    if (pairs_) {
        const std::int64_t packed = paired_.src_bytes + paired_.dst_bytes;
        const std::int64_t room = parts_ > 1 ? 1 : 1 + weights / packed;
        images_ = std::clamp<std::int64_t>(images_, std::min<std::int64_t>(shape_.N, 1), room);
    }
}

std::int64_t WeightsSum::scratch_bytes(DType to, int threads) const {
    const bool copies = parts_ > 1 || to != DType::f32;
    const std::int64_t sums = copies ? parts_ * aligned(elements_ * size_of(DType::f32)) : 0;
    const std::int64_t packed =
        pairs_ ? packers(threads) * images_ * (paired_.src_bytes + paired_.dst_bytes) : 0;
    return sums + packed;
}

void WeightsSum::run(const Tensors& tensors, char* scratch, int threads) const {
    const bool copies = parts_ > 1 || tensors.to != DType::f32;
    const std::int64_t copy = aligned(elements_ * size_of(DType::f32));
    const std::int64_t packed = images_ * (paired_.src_bytes + paired_.dst_bytes);
    if (!copies) {
        auto* const sums = static_cast<float*>(tensors.diff_weights);
        if (shape_.N == 0) std::fill_n(sums, elements_, 0.0F);
        sum_part(tensors, {{0, shape_.N}, sums, scratch, threads});
        return;
    }
    std::memset(scratch, 0, static_cast<std::size_t>(parts_ * copy));
    char* const pairs = scratch + parts_ * copy;
    const std::int64_t shares = packers(threads);
    parallel_for(shares, [&](std::int64_t packer) {
        const Range mine = chunk(parts_, shares, packer);
        for (std::int64_t part = mine.begin; part < mine.end; ++part) {
            sum_part(tensors, {chunk(shape_.N, parts_, part),
                               reinterpret_cast<float*>(scratch + part * copy),
                               pairs + packer * packed, threads});
        }
    });
    add_copies(
        {reinterpret_cast<const float*>(scratch), elements_, copy / size_of(DType::f32), parts_},
        tensors.to, tensors.diff_weights);
}

void WeightsSum::sum_part(const Tensors& tensors, const Part& part) const {
    const Layout layout = conv_.spec().layout;
    const std::int64_t element = size_of(conv_.spec().dtype);
    const std::int64_t src_image =
        activation_strides(layout, src_blocks(shape_), shape_.H, shape_.W).image * element;
    const std::int64_t dst_image =
        activation_strides(layout, dst_blocks(shape_), shape_.P(), shape_.Q()).image * element;
    const Range images = part.images;
    for (std::int64_t begin = images.begin; begin < images.end; begin += images_) {
        const Range now{begin, std::min(begin + images_, images.end)};
        const auto plan = conv_.plan(ConvPass::backward_weights, now.size());
        ContractionOperands operands{.c = part.sums, .accumulate = begin > images.begin};
        if (pairs_) {
            pack(now, tensors.src, tensors.diff_dst, part.packed);
            operands.a = part.packed;
            operands.b = part.packed + now.size() * paired_.src_bytes;
            if (now.end < images.end) {
                operands.ahead_a = packer_->src_rows(tensors.src, now.end);
                operands.ahead_b = packer_->dst_rows(tensors.diff_dst, now.end);
            }
        } else {
            operands.a = static_cast<const char*>(tensors.src) + now.begin * src_image;
            operands.b = static_cast<const char*>(tensors.diff_dst) + now.begin * dst_image;
        }
        plan->run(operands, nullptr, part.threads);
    }
}

void WeightsSum::pack(Range bands, const void* src, const void* diff_dst, char* packed) const {
    parallel_for(bands.size() * packer_->blocks(), [&](std::int64_t task) {
        const std::int64_t index = task / packer_->blocks();
        packer_->pack_block(bands.begin + index, task % packer_->blocks(), src, diff_dst,
                            {.packed = packed, .bands = bands.size(), .index = index});
    });
}

void add_copies(const GradientCopies& copies, DType to, void* diff_weights) {
    const Blocks pieces{copies.elements, kElementsAtOnce};
    parallel_for(pieces.count(), [&](std::int64_t piece) {
        const Range range = pieces.at(piece);
        float total[kElementsAtOnce];
        float* const out =
            to == DType::f32 ? static_cast<float*>(diff_weights) + range.begin : total;
        std::copy(copies.first + range.begin, copies.first + range.end, out);
        for (std::int64_t copy = 1; copy < copies.count; ++copy) {
            const float* const addend = copies.first + copy * copies.stride + range.begin;
            for (std::int64_t i = 0; i < range.size(); ++i) out[i] += addend[i];
        }
        if (to != DType::f32) {
            row_functions(usable_isa())
                .round(total, static_cast<std::uint16_t*>(diff_weights) + range.begin,
                       range.size());
        }
    });
}

}  // namespace dlprim
