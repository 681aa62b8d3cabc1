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

class PixelProgram {
public:
    // sums += src - mean and products += (src - mean)^2, about `mean`, any value near the true one.
    static PixelProgram statistics(DType dtype, const PixelRows& like);
    // out
    static PixelProgram normalize(DType dtype, const PixelRows& like);
    // sums, products += and out, if any
    static PixelProgram add_gradients(DType dtype, const PixelRows& like);
    // out = scale * (passed - mean_diff - (src - mean) * mean_slope)
    static PixelProgram apply_gradients(DType dtype, const PixelRows& like);
    // out = what passed of diff_dst, which is added to the sums, if any. No activation is relu
    // without a gate, and only relu may lack `out`.
    static PixelProgram through_activation(DType dtype, Activation activation,
                                           const PixelRows& like);

    // Pointers that `like` had are there, the others are not looked at.
    void operator()(const PixelRows& it) const;

private:
    using Pointer = const void* (*)(const PixelRows&);

    class Writer;

    std::shared_ptr<const RowKernel> kernel_;
    std::vector<Pointer> pointers_;  // of each operand
    std::int64_t together_ = 0;      // pixels that are treated strip by strip
};

}  // namespace dlprim
