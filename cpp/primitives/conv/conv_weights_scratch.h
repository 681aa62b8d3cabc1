// How much memory backward-weights takes beside its operands: at most diff_weights in float32 and
// one image of src and of diff_dst for each thread, unless the pairs of a single row of results are
// more. That has to hold sums that are rounded afterwards, copies of sums of parts of the
// minibatch, packed bands of images, and dense images of gathered pixels.
#pragma once

#include <cstdint>

#include "primitives/conv/conv_contraction.h"
#include "primitives/tensor/partition.h"

namespace dlprim {

// Sums that are rounded afterwards are taken slice by slice where the weights are larger than an
// image: more bands then find room beside them, and the sums are not read and written for each.
struct WeightsScratch {
    std::int64_t weights = 0;  // bytes of diff_weights in float32
    std::int64_t image = 0;    // bytes of an image of src and diff_dst, as the operands have them
    int loop = 0;              // of the pass (g, k or c) whose slices are contiguous
    Blocks slices = {};        // of its indices

    bool is_sliced(DType to) const { return to != DType::f32 && slices.count() > 1; }
    std::int64_t slice_bytes() const {
        return slices.extent == 0 ? weights : weights / slices.extent * slices.block;
    }
    // Bytes for packed bands beside the sums of a result of type `to`.
    std::int64_t room(DType to) const {
        return weights + image - (to == DType::f32 ? 0 : slice_bytes());
    }
};

WeightsScratch weights_scratch(const ConvProblem& problem);

}  // namespace dlprim
