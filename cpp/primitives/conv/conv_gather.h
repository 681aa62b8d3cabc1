// Brings together the pixels of src that a strided pointwise filter reads, for the float32
// backward-weights pass. In place half of every row and every second row lie between them: calls
// have a short row to sum over, and prefetching brings what nobody reads. As dense images they are
// those of a filter with stride 1, whose rows can have any length.
#pragma once

#include <cstdint>

#include "primitives/conv/conv_contraction.h"

namespace dlprim {

class PixelGatherer {
public:
    // `problem` gathers_pixels().
    explicit PixelGatherer(const ConvProblem& problem);

    // Of one dense image, blocked in either layout.
    std::int64_t bytes() const { return blocks_.count() * block_bytes_; }
    std::int64_t blocks() const { return blocks_.count(); }
    // Copies one block of channels of one image to its place in the dense image `out`.
    void gather_block(std::int64_t image, std::int64_t block, const void* src, char* out) const;

private:
    ConvShape shape_;
    ChannelBlocks blocks_;
    ActivationStrides src_;
    std::int64_t block_bytes_;
};

}  // namespace dlprim
