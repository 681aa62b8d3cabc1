// The direct backward-weights pass: how it divides its sum over the minibatch. Where the blocks of
// diff_weights are many, threads share them; where they are few, or small beside the pairs of
// bfloat16 images, the images fall into fixed parts (fixed_parts.h). Images that are not read in
// place are packed first, as many of them at a time as the scratch has room for (conv_weights.h).
#include <algorithm>
#include <optional>

#include "primitives/conv/conv_pass.h"
#include "primitives/conv/conv_weights.h"
#include "primitives/nest/fixed_parts.h"
#include "primitives/nest/schedule_cost.h"
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

// Variants: so many images at once, all weights or one of two slices. The typical one is for as
// many as the parts of its schedule leave at once of a float32 result.
constexpr std::int64_t kSlices = 3;
constexpr std::int64_t kTypical = -1;

std::int64_t variant_of(const WeightsPart& it) { return it.images * kSlices + it.slice + 1; }

WeightsPart part_of(std::int64_t variant) {
    return {variant / kSlices, static_cast<int>(variant % kSlices) - 1};
}

struct WeightsPlan {
    ContractionPlan nest;
    std::int64_t variant = 0;
    WeightsDivision exact = {};    // for a result of float32
    WeightsDivision rounded = {};  // and of the type of the convolution

    std::vector<std::string> kernel_names() const { return nest.kernel_names(); }
};

class DirectWeights final : public ConvPass {
public:
    explicit DirectWeights(const ConvSpec& spec)
        : problem_(spec.problem()),
          scratch_(problem_),
          images_(weights_images(problem_)),
          packer_(problem_, images_),
          in_(src_blocks(images_.shape)),
          out_(dst_blocks(images_.shape)),
          packed_bytes_(images_.src_bytes + images_.dst_bytes),
          many_blocks_(out_.count() * in_.per_group() * images_.shape.R * images_.shape.S >=
                       kManyBlocks) {
        while (most_parts_ < std::min(images_.shape.N, kMostParts) &&
               scratch_.room_beside(most_parts_ + 1, spec.dtype) >= packed_bytes_) {
            ++most_parts_;
        }
        nest_.emplace(rules());
    }

    void run(const ConvTensors& it) const override {
        const auto typical = nest_->typical_plan();
        const WeightsDivision& division = it.to == DType::f32 ? typical->exact : typical->rounded;
        const int threads = num_threads();
        const bool one_by_one = packers(division, threads) == 1;
        const WorkspacePool::Lease scratch(workspaces(), bytes(division, threads));
        char* const packed = scratch.data() + division.sums_bytes();
        for (std::int64_t slice = 0; slice < division.slices.count(); ++slice) {
            const Range indices = division.slices.at(slice);
            const bool all = division.slices.count() == 1;
            division.sums(indices).run(
                static_cast<char*>(it.result) +
                    indices.begin * division.index_elements * size_of(it.to),
                scratch.data(), one_by_one ? 1 : threads,
                [&](std::int64_t part, float* sums, std::int64_t packer) {
                    const Images mine{.all = chunk(images_.shape.N, division.parts, part),
                                      .slice = all ? WeightsPart::kAll : static_cast<int>(slice),
                                      .packed = packed + packer * division.at_once * packed_bytes_,
                                      .threads = threads};
                    sum(it, *typical, division, mine, sums);
                    if (images_.shape.N == 0) {
                        std::fill_n(sums, indices.size() * division.index_elements, 0.0F);
                    }
                });
        }
        clear_diff_weights_padding(problem_.shape, it.to, it.result);
    }

    std::int64_t scratch_bytes() const override {
        const int threads = num_threads();
        const std::int64_t parts = sum_schedule(nest_->schedule(), image_loop(), most_parts_).parts;
        return std::max(bytes(division(parts, DType::f32), threads),
                        bytes(division(parts, problem_.dtype), threads));
    }

    ScheduledNest* nest() const override { return &*nest_; }

private:
    // What a part of the sum is over, and where its images are packed.
    struct Images {
        Range all = {};
        int slice = WeightsPart::kAll;
        char* packed = nullptr;
        int threads = 1;
    };
    struct BlockRanges {
        Range in;
        Range out;
    };

    bool in_pairs() const { return images_.form == WeightsImages::Form::pairs; }
    Loop image_loop() const { return {'n', images_.shape.N}; }

    Scheduled<WeightsPlan>::Rules rules() const {
        const std::int64_t parts = ranked_parts();
        const WeightsPart typical{.images = division(parts, DType::f32).at_once};
        const auto loops = [=, this] {
            std::vector<Loop> found = loops_of(weights_contraction(problem_, typical));
            for (Loop& loop : found) {
                if (loop.letter == image_loop().letter) loop = image_loop();
            }
            return found;
        };
        return {.plan = [this](std::int64_t variant,
                               const Schedule& schedule) { return plan(variant, schedule); },
                .candidates =
                    [=, this](int count) {
                        std::vector<Schedule> found = ranked_schedules(
                            weights_contraction(problem_, typical), this_machine(), count);
                        for (Schedule& it : found) it = with_parts(it, image_loop(), parts);
                        return found;
                    },
                .loops = loops,
                .typical = kTypical};
    }

    std::shared_ptr<const WeightsPlan> plan(std::int64_t variant, const Schedule& schedule) const {
        const SumSchedule sum = sum_schedule(schedule, image_loop(), most_parts_);
        const WeightsDivision exact = division(sum.parts, DType::f32);
        if (variant == kTypical) variant = variant_of({.images = exact.at_once});
        return std::make_shared<const WeightsPlan>(
            ContractionPlan(weights_contraction(problem_, part_of(variant)), sum.within), variant,
            exact, division(sum.parts, problem_.dtype));
    }

    std::int64_t ranked_parts() const {
        const bool worth =
            in_pairs() && images_.shape.N * packed_bytes_ >= kPairsWorthCopies * scratch_.weights;
        return many_blocks_ && !worth ? 1 : even_parts(images_.shape.N, most_parts_);
    }

    WeightsDivision division(std::int64_t parts, DType to) const {
        return scratch_.divided(images_.shape.N, packed_bytes_, parts, to);
    }

    // Threads with packed images and parts of their own. More threads than there are parts do
    // better to share the blocks of one part after the other, if there are many.
    int packers(const WeightsDivision& it, int threads) const {
        if (threads > it.parts && many_blocks_) return 1;
        return static_cast<int>(std::min<std::int64_t>(it.parts, threads));
    }

    std::int64_t bytes(const WeightsDivision& it, int threads) const {
        return it.sums_bytes() + packers(it, threads) * it.at_once * packed_bytes_;
    }

    void sum(const ConvTensors& tensors, const WeightsPlan& typical,
             const WeightsDivision& division, const Images& images, float* sums) const {
        const std::int64_t first =
            images.slice == WeightsPart::kAll ? 0 : division.slices.at(images.slice).begin;
        for (std::int64_t begin = images.all.begin; begin < images.all.end;
             begin += division.at_once) {
            const Range now{begin, std::min(begin + division.at_once, images.all.end)};
            const std::int64_t variant = variant_of({now.size(), images.slice});
            const auto other = variant == typical.variant ? nullptr : nest_->plan(variant);
            const ContractionPlan& nest = other ? other->nest : typical.nest;
            const ContractionLoop& loop =
                nest.contraction().loops[static_cast<std::size_t>(scratch_.loop)];
            const char* const src = static_cast<const char*>(tensors.src);
            const char* const diff_dst = static_cast<const char*>(tensors.diff_dst);
            ContractionOperands operands{.a = src + packer_.src_offset(begin),
                                         .b = diff_dst + packer_.dst_offset(begin),
                                         .c = sums,
                                         .accumulate = begin > images.all.begin};
            if (packed_bytes_ > 0) {
                pack(now, blocks_to_pack(division, images), tensors, images.packed);
            }
            if (images_.src_bytes > 0) operands.a = images.packed + first * loop.a;
            if (images_.dst_bytes > 0) {
                operands.b = images.packed + now.size() * images_.src_bytes + first * loop.b;
            }
            if (in_pairs() && now.end < images.all.end) {
                operands.ahead_a = src + packer_.src_offset(now.end) + first * loop.ahead_a;
                operands.ahead_b = diff_dst + packer_.dst_offset(now.end) + first * loop.ahead_b;
            }
            nest.run(operands, nullptr, images.threads);
        }
    }

    // Where all images are packed at once, they stay for the next slice.
    BlockRanges blocks_to_pack(const WeightsDivision& division, const Images& images) const {
        BlockRanges blocks{{0, images_.src_bytes > 0 ? in_.count() : 0},
                           {0, images_.dst_bytes > 0 ? out_.count() : 0}};
        if (images.slice == WeightsPart::kAll) return blocks;
        const Range range = division.slices.at(images.slice);
        const bool stay = images.slice > 0 && division.at_once >= images.all.size();
        const auto in_slice = [&](bool follows, Range& all, std::int64_t blocks_of_index) {
            if (all.size() == 0) return;
            if (follows) {
                all = {range.begin * blocks_of_index, range.end * blocks_of_index};
            } else if (stay) {
                all = {0, 0};
            }
        };
        const bool groups = scratch_.letter() == 'g';
        in_slice(scratch_.letter() != 'k', blocks.in, groups ? in_.per_group() : 1);
        in_slice(scratch_.letter() != 'c', blocks.out, groups ? out_.per_group() : 1);
        return blocks;
    }

    // Block by block, as the nest shares them: a thread then has packed what it reads, of one
    // operand or of both.
    void pack(Range images, const BlockRanges& blocks, const ConvTensors& tensors,
              char* packed) const {
        const std::int64_t count = blocks.in.size() + blocks.out.size();
        parallel_for(images.size() * count, [&](std::int64_t task) {
            const std::int64_t image = images.begin + task % images.size();
            const Merged it = merged(blocks.in.size(), blocks.out.size(), task / images.size());
            const std::int64_t block = it.is_first ? blocks.in.begin + it.index
                                                   : in_.count() + blocks.out.begin + it.index;
            packer_.pack_block(images, image, block, tensors, packed);
        });
    }

    ConvProblem problem_;
    WeightsScratch scratch_;
    WeightsImages images_;  // what is summed: images, or bands of them
    ImagePacker packer_;
    ChannelBlocks in_;
    ChannelBlocks out_;
    std::int64_t packed_bytes_;  // of one of these; 0: they are in place
    bool many_blocks_;
    std::int64_t most_parts_ = 1;
    mutable std::optional<Scheduled<WeightsPlan>> nest_;
};

}  // namespace

std::unique_ptr<ConvPass> direct_weights_pass(const ConvSpec& spec) {
    return std::make_unique<DirectWeights>(spec);
}

}  // namespace dlprim
