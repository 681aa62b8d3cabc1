#include "primitives/conv/conv_weights_sum.h"

#include <algorithm>
#include <cstring>

#include "jit/isa.h"
#include "primitives/tensor/pack_rows.h"
#include "primitives/tensor/parallel.h"

namespace dlprim {
namespace {

// With this many blocks of diff_weights threads can share the blocks, with fewer the minibatch.
constexpr std::int64_t kManyBlocks = 32;
// Of diff_weights, how many times their bytes pairs have to take for threads to share the minibatch
// nevertheless: then each reads the pairs that it has packed itself, instead of half of those that
// another one has in its cache, and the copies that have to be added cost less than that.
constexpr std::int64_t kPairsWorthCopies = 3;
constexpr std::int64_t kMostParts = 8;
// Elements of diff_weights that are combined at a time.
constexpr std::int64_t kElementsAtOnce = 4096;

ConvProblem problem_of(const Conv2d& conv) {
    return {conv.spec().shape, conv.spec().dtype, conv.spec().layout};
}

}  // namespace

WeightsSum::WeightsSum(const Conv2d& conv)
    : conv_(conv),
      scratch_(weights_scratch(problem_of(conv))),
      pairs_(conv.spec().dtype == DType::bf16),
      paired_(pairs_ ? paired_images(problem_of(conv)) : PairedImages{}),
      shape_(pairs_ ? paired_.shape : weights_pass_shape(problem_of(conv))),
      packed_bytes_(paired_.src_bytes + paired_.dst_bytes),
      copy_bytes_(aligned(scratch_.weights)) {
    if (pairs_) packer_.emplace(problem_of(conv), paired_);
    if (gathers_pixels(problem_of(conv))) {
        gatherer_.emplace(problem_of(conv));
        packed_bytes_ = gatherer_->bytes();
    }
    const std::int64_t blocks =
        dst_blocks(shape_).count() * src_blocks(shape_).per_group() * shape_.R * shape_.S;
    many_blocks_ = blocks >= kManyBlocks;
}

std::int64_t WeightsSum::room_beside(std::int64_t copies) const {
    return scratch_.weights + scratch_.image - copies * copy_bytes_;
}

// A power of two, which two, four or eight threads share evenly.
std::int64_t WeightsSum::parts(DType to) const {
    const bool worth = pairs_ && shape_.N * packed_bytes_ >= kPairsWorthCopies * scratch_.weights;
    if (many_blocks_ && !worth) return 1;
    std::int64_t parts = 1;
    while (2 * parts <= std::min(shape_.N, kMostParts) &&
           room_beside(copies(2 * parts, to)) >= packed_bytes_) {
        parts *= 2;
    }
    return parts;
}

std::int64_t WeightsSum::images(DType to) const {
    const std::int64_t parts = this->parts(to);
    const std::int64_t part = (shape_.N + parts - 1) / parts;
    if (!pairs_ && !gatherer_) return part;
    // As much of them as of the weights, which are read and written once for all.
    const std::int64_t worth = 1 + scratch_.weights / packed_bytes_;
    const std::int64_t free = parts > 1 ? room_beside(copies(parts, to)) : scratch_.room(to);
    const std::int64_t room = std::min(worth, free / packed_bytes_);
    return std::clamp<std::int64_t>(part, std::min<std::int64_t>(shape_.N, 1),
                                    std::max<std::int64_t>(room, 1));
}

std::int64_t WeightsSum::scratch_bytes(DType to, int threads) const {
    const std::int64_t parts = this->parts(to);
    const std::int64_t packed = packers(parts, threads) * images(to) * packed_bytes_;
    if (parts > 1) return copies(parts, to) * copy_bytes_ + packed;
    return (to == DType::f32 ? 0 : aligned(scratch_.slice_bytes())) + packed;
}

void WeightsSum::run(const Tensors& tensors, char* scratch, int threads) const {
    if (parts(tensors.to) > 1) return run_parts(tensors, scratch, threads);
    if (tensors.to != DType::f32) return run_slices(tensors, scratch, threads);
    auto* const sums = static_cast<float*>(tensors.diff_weights);
    if (shape_.N == 0) std::memset(sums, 0, static_cast<std::size_t>(scratch_.weights));
    sum_part(tensors, {.images = {0, shape_.N},
                       .sums = sums,
                       .packed = scratch,
                       .threads = threads,
                       .at_once = images(tensors.to)});
}

void WeightsSum::run_parts(const Tensors& tensors, char* scratch, int threads) const {
    const std::int64_t parts = this->parts(tensors.to);
    const std::int64_t copies = this->copies(parts, tensors.to);
    char* const pairs = scratch + copies * copy_bytes_;
    const std::int64_t shares = packers(parts, threads);
    const std::int64_t at_once = images(tensors.to);
    const auto sums_of = [&](std::int64_t part) {
        const std::int64_t copy = part - (parts - copies);
        return copy < 0 ? static_cast<float*>(tensors.diff_weights)
                        : reinterpret_cast<float*>(scratch + copy * copy_bytes_);
    };
    const auto sum_parts = [&](std::int64_t packer) {
        const Range mine = chunk(parts, shares, packer);
        for (std::int64_t part = mine.begin; part < mine.end; ++part) {
            sum_part(tensors, {.images = chunk(shape_.N, parts, part),
                               .sums = sums_of(part),
                               .packed = pairs + packer * at_once * packed_bytes_,
                               .threads = threads,
                               .at_once = at_once});
        }
    };
    if (shares == 1) {
        sum_parts(0);  // whose nests all threads share
    } else {
        parallel_for(shares, sum_parts);
    }
    add_copies({.first = sums_of(parts - copies),
                .elements = scratch_.weights / size_of(DType::f32),
                .stride = copy_bytes_ / size_of(DType::f32),
                .count = copies,
                .onto_result = copies < parts},
               tensors.to, tensors.diff_weights);
}

void WeightsSum::run_slices(const Tensors& tensors, char* scratch, int threads) const {
    Part part{.images = {0, shape_.N},
              .sums = reinterpret_cast<float*>(scratch),
              .packed = scratch + aligned(scratch_.slice_bytes()),
              .threads = threads,
              .at_once = images(tensors.to)};
    const std::int64_t elements =
        scratch_.weights / size_of(DType::f32) / scratch_.slices.extent;  // of an index
    for (std::int64_t slice = 0; slice < scratch_.slices.count(); ++slice) {
        const Range range = scratch_.slices.at(slice);
        if (scratch_.is_sliced(tensors.to)) part.slice = static_cast<int>(slice);
        if (shape_.N == 0) std::fill_n(part.sums, range.size() * elements, 0.0F);
        sum_part(tensors, part);
        add_copies({.first = part.sums, .elements = range.size() * elements}, tensors.to,
                   static_cast<char*>(tensors.diff_weights) +
                       range.begin * elements * size_of(tensors.to));
    }
}

void WeightsSum::sum_part(const Tensors& tensors, const Part& part) const {
    const Format layout = conv_.spec().layout;
    const std::int64_t element = size_of(conv_.spec().dtype);
    const std::int64_t src_image =
        activation_strides(layout, src_blocks(shape_), shape_.H, shape_.W).image * element;
    const std::int64_t dst_image =
        activation_strides(layout, dst_blocks(shape_), shape_.P(), shape_.Q()).image * element;
    const Range images = part.images;
    const std::int64_t first =
        part.slice == WeightsPart::kAll ? 0 : scratch_.slices.at(part.slice).begin;
    for (std::int64_t begin = images.begin; begin < images.end; begin += part.at_once) {
        const Range now{begin, std::min(begin + part.at_once, images.end)};
        const auto plan = conv_.plan({now.size(), part.slice});
        const ContractionLoop& loop =
            plan->contraction().loops[static_cast<std::size_t>(scratch_.loop)];
        ContractionOperands operands{.c = part.sums, .accumulate = begin > images.begin};
        if (pairs_) {
            pack(now, blocks_to_pack(part), tensors, part.packed);
            operands.a = part.packed + first * loop.a;
            operands.b = part.packed + now.size() * paired_.src_bytes + first * loop.b;
            if (now.end < images.end) {
                operands.ahead_a = packer_->src_rows(tensors.src, now.end) + first * loop.ahead_a;
                operands.ahead_b =
                    packer_->dst_rows(tensors.diff_dst, now.end) + first * loop.ahead_b;
            }
        } else {
            operands.a = gatherer_ ? gather(now, tensors.src, part.packed)
                                   : static_cast<const char*>(tensors.src) + now.begin * src_image;
            operands.b = static_cast<const char*>(tensors.diff_dst) + now.begin * dst_image;
        }
        plan->run(operands, nullptr, part.threads);
    }
}

// Where all images are packed at once, they stay for the next slice.
WeightsSum::BlockRanges WeightsSum::blocks_to_pack(const Part& part) const {
    const ChannelBlocks in = src_blocks(shape_);
    const ChannelBlocks out = dst_blocks(shape_);
    BlockRanges blocks{{0, in.count()}, {0, out.count()}};
    if (part.slice == WeightsPart::kAll) return blocks;
    const Range range = scratch_.slices.at(part.slice);
    const bool stay = part.slice > 0 && part.at_once >= part.images.size();
    const auto in_slice = [&](bool follows, Range& all, std::int64_t blocks_of_index) {
        if (follows) {
            all = {range.begin * blocks_of_index, range.end * blocks_of_index};
        } else if (stay) {
            all = {0, 0};
        }
    };
    in_slice(scratch_.loop != 1, blocks.in, scratch_.loop == 0 ? in.per_group() : 1);
    in_slice(scratch_.loop != 2, blocks.out, scratch_.loop == 0 ? out.per_group() : 1);
    return blocks;
}

const char* WeightsSum::gather(Range images, const void* src, char* dense) const {
    const std::int64_t blocks = gatherer_->blocks();
    parallel_for(images.size() * blocks, [&](std::int64_t task) {
        const std::int64_t index = task / blocks;
        gatherer_->gather_block(images.begin + index, task % blocks, src,
                                dense + index * packed_bytes_);
    });
    return dense;
}

// Block by block, as the nest shares them: a thread then has packed what it reads, of one operand
// or of both.
void WeightsSum::pack(Range bands, const BlockRanges& blocks, const Tensors& tensors,
                      char* packed) const {
    const std::int64_t count = blocks.in.size() + blocks.out.size();
    const std::int64_t in_blocks = src_blocks(shape_).count();
    parallel_for(bands.size() * count, [&](std::int64_t task) {
        const std::int64_t index = task % bands.size();
        const Merged it = merged(blocks.in.size(), blocks.out.size(), task / bands.size());
        const std::int64_t block =
            it.is_first ? blocks.in.begin + it.index : in_blocks + blocks.out.begin + it.index;
        packer_->pack_block(bands.begin + index, block, tensors.src, tensors.diff_dst,
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
        const std::int64_t begin = copies.onto_result ? 0 : 1;
        if (begin == 1) std::copy(copies.first + range.begin, copies.first + range.end, out);
        for (std::int64_t copy = begin; copy < copies.count; ++copy) {
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
