// How backward-weights divides its sum over the minibatch. Where the blocks of diff_weights are
// many, threads share them; where they are few, the images fall into a fixed number of parts, each
// summed into a copy of its own, and the copies are added in order: in both cases the same bits for
// any number of threads. bfloat16 images are brought into pairs of pixels first, as many of them
// at a time as the scratch has room for.
#pragma once

#include <cstdint>
#include <optional>

#include "primitives/conv2d.h"
#include "primitives/conv_pairs.h"

namespace dlprim {

class WeightsSum {
public:
    explicit WeightsSum(const Conv2d& conv);

    // For a result of type `to` and the present number of threads.
    std::int64_t scratch_bytes(DType to) const;
    // Images that one run of the nest sums, before the last ones of a part.
    std::int64_t images() const { return images_; }

    void run(const void* src, const void* diff_dst, DType to, void* diff_weights,
             char* scratch) const;

private:
    void sum_part(Range images, const void* src, const void* diff_dst, float* sums,
                  char* packed) const;
    void pack(Range bands, const void* src, const void* diff_dst, char* packed) const;
    void combine(const float* sums, DType to, void* diff_weights) const;
    std::int64_t packers() const;  // threads with packed images of their own

    const Conv2d& conv_;
    bool pairs_;
    PairedImages paired_;
    std::optional<PairPacker> packer_;
    ConvShape shape_;         // of the images that are summed: bands where there are pairs
    std::int64_t elements_;   // of diff_weights, padding included
    std::int64_t parts_ = 1;  // that the minibatch falls into
    std::int64_t images_ = 1;
};

}  // namespace dlprim
