// Passes over pixels of activations as row programs: batch normalisation in both directions, and
// gradients through activations with the sums that biases need. A pixel is a row, a channel a
// column; which of the pointers are there decides what a program computes, so one is made for a
// pass and called for every piece of it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "jit/activation.h"
#include "primitives/layers/channel_panels.h"
#include "rows/row_kernel.h"

namespace dlprim {

enum class PixelPass : std::uint8_t {
    statistics,     // sums += src - mean, products += (src - mean)^2, about any value near the mean
    normalize,      // out
    add_gradients,  // sums, products += and out, if any
    apply_gradients,  // out = scale * (passed - mean_diff - (src - mean) * mean_slope)
    // out = what passed of diff_dst, which is added to the sums, if any. No activation is relu
    // without a gate, and only relu may lack `out`.
    activation,
};

class PixelProgram {
public:
    // The program of a pass on pixels like those, which is kept: pointers that are there here must
    // be there in calls, the others are not looked at. f32 or bf16.
    static const PixelProgram& of(PixelPass pass, DType dtype, const PixelRows& like,
                                  Activation activation = Activation::none);

    void operator()(const PixelRows& it) const;

private:
    using Pointer = const void* (*)(const PixelRows&);

    class Writer;

    std::shared_ptr<const RowKernel> kernel_;
    std::vector<Pointer> pointers_;  // of each operand
    std::int64_t group_bytes_ = 0;   // of pixels that are treated strip by strip; 0: all
};

}  // namespace dlprim
