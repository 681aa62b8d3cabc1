// How much memory backward-weights takes beside its operands: at most diff_weights in float32 and
// one image of src and of diff_dst for each thread, unless the pairs of a single row of results are
// more. That has to hold sums that are rounded afterwards, copies of sums of parts of the
// minibatch, packed bands of images, and dense images of gathered pixels.
#pragma once

#include <cstdint>

#include "primitives/conv/conv_contraction.h"
#include "primitives/nest/fixed_parts.h"
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
    // The same beside the copies of so many parts of the minibatch.
    std::int64_t room_beside(std::int64_t parts, DType to) const {
        return weights + image - FixedParts(parts, elements(), to).scratch_bytes();
    }
    std::int64_t elements() const { return weights / size_of(DType::f32); }
};

WeightsScratch weights_scratch(const ConvProblem& problem);

// How the sum for a result of one type is divided.
struct WeightsDivision {
    std::int64_t parts = 1;           // of the minibatch, or
    Blocks slices{1, 1};              // of the weights, that are summed one after the other
    std::int64_t index_elements = 0;  // of diff_weights, for each index of the slices
    std::int64_t at_once = 1;         // images, or bands, that one run of the nest sums
    DType to = DType::f32;

    FixedParts sums(Range indices) const { return {parts, indices.size() * index_elements, to}; }
    std::int64_t sums_bytes() const { return sums(slices.at(0)).scratch_bytes(); }
};

// What is summed: images, or bands of them.
struct SummedImages {
    std::int64_t count = 0;
    std::int64_t packed_bytes = 0;  // of one; 0: they are read in place
};

WeightsDivision divided(const WeightsScratch& scratch, const SummedImages& images,
                        std::int64_t parts, DType to);

}  // namespace dlprim
