// How backward-weights divides its sum over the minibatch. Where the blocks of diff_weights are
// many, threads share them; where they are few, or small beside the pairs of bfloat16 images, the
// images fall into a fixed number of parts, each summed into a copy of its own, and the copies are
// added in order: in both cases the same bits for any number of threads. bfloat16 images are
// brought into pairs of pixels first, and the pixels of src that a strided pointwise filter reads
// into dense images, as many of them at a time as the scratch has room for
// (conv_weights_scratch.h).
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "primitives/conv/conv2d.h"
#include "primitives/conv/conv_gather.h"
#include "primitives/conv/conv_pairs.h"
#include "primitives/conv/conv_weights_scratch.h"

namespace dlprim {

// Sums of one gradient, `stride` floats apart.
struct GradientCopies {
    const float* first = nullptr;
    std::int64_t elements = 0;
    std::int64_t stride = 0;
    std::int64_t count = 1;
    bool onto_result = false;  // a float32 result holds one more, the first
};

// Their sum in order, as float32 or bfloat16.
void add_copies(const GradientCopies& copies, DType to, void* diff_weights);

class WeightsSum {
public:
    explicit WeightsSum(const Conv2d& conv);

    // For a result of type `to`.
    std::int64_t scratch_bytes(DType to, int threads) const;
    // What most runs of the nest sum into a float32 result.
    WeightsPart typical_part() const { return {.images = images(DType::f32)}; }

    struct Tensors {
        const void* src = nullptr;
        const void* diff_dst = nullptr;
        DType to = DType::f32;  // of diff_weights
        void* diff_weights = nullptr;
    };

    // `scratch` has scratch_bytes(tensors.to, threads).
    void run(const Tensors& tensors, char* scratch, int threads) const;

private:
    struct Part {
        Range images;
        float* sums = nullptr;
        char* packed = nullptr;
        int threads = 1;
        int slice = WeightsPart::kAll;
        std::int64_t at_once = 1;  // images
    };
    void run_parts(const Tensors& tensors, char* scratch, int threads) const;
    void run_slices(const Tensors& tensors, char* scratch, int threads) const;
    void sum_part(const Tensors& tensors, const Part& part) const;
    struct BlockRanges {
        Range in;
        Range out;
    };
    BlockRanges blocks_to_pack(const Part& part) const;
    const char* gather(Range images, const void* src, char* dense) const;
    void pack(Range bands, const BlockRanges& blocks, const Tensors& tensors, char* packed) const;
    // Images, or bands, that one run of the nest sums, before the last ones of a part.
    std::int64_t images(DType to) const;
    // That the minibatch falls into.
    std::int64_t parts(DType to) const;
    // Sums of parts that need scratch: a float32 result holds the first itself.
    static std::int64_t copies(std::int64_t parts, DType to) {
        return to == DType::f32 ? parts - 1 : parts;
    }
    // Bytes of scratch for packed images, beside so many copies of diff_weights.
    std::int64_t room_beside(std::int64_t copies) const;
    // Threads with packed images and parts of their own. More threads than there are parts do
    // better to share the blocks of one part after the other, if there are many.
    std::int64_t packers(std::int64_t parts, int threads) const {
        return threads > parts && many_blocks_ ? 1 : std::min<std::int64_t>(parts, threads);
    }

    const Conv2d& conv_;
    WeightsScratch scratch_;
    bool pairs_;
    PairedImages paired_;
    std::optional<PairPacker> packer_;
    std::optional<PixelGatherer> gatherer_;
    ConvShape shape_;            // of the images that are summed: bands where there are pairs
    std::int64_t packed_bytes_;  // of a band, or of a dense image
    std::int64_t copy_bytes_;    // from one copy of diff_weights to the next
    bool many_blocks_ = false;
};

}  // namespace dlprim
