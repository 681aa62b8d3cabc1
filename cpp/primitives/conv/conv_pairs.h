// Fills the packed bands of a bfloat16 backward-weights pass (conv_contraction.h, PairedImages).
#pragma once

#include <cstdint>
#include <vector>

#include "primitives/conv/conv_contraction.h"

namespace dlprim {

class PairPacker {
public:
    // `paired` must outlive the packer.
    PairPacker(const ConvProblem& problem, const PairedImages& paired);

    // Where bands are packed one behind the other, all of src first, and the place among them.
    struct Target {
        char* packed = nullptr;
        std::int64_t bands = 1;
        std::int64_t index = 0;
    };

    // Where the rows of a band begin in its tensor; in the padding the first row of the image.
    const char* src_rows(const void* src, std::int64_t band) const;
    const char* dst_rows(const void* diff_dst, std::int64_t band) const;

    // Packs one block of channels of one band; those of diff_dst count behind those of src.
    void pack_block(std::int64_t band, std::int64_t block, const void* src, const void* diff_dst,
                    const Target& target) const;

private:
    void pack_src(std::int64_t band, std::int64_t block, const std::uint16_t* image,
                  std::uint16_t* out) const;
    void pack_row(const std::uint16_t* row, std::int64_t channels, std::int64_t first,
                  std::uint16_t* out) const;
    void pack_windows(const std::uint16_t* row, std::uint16_t* out) const;
    void pack_diff_dst(std::int64_t band, std::int64_t block, const std::uint16_t* image,
                       std::uint16_t* out) const;

    ConvShape whole_;
    const PairedImages& paired_;
    ChannelBlocks in_;
    ChannelBlocks out_;
    ActivationStrides src_;
    ActivationStrides dst_;
    std::vector<bool> is_read_;  // rows of a band that some filter row meets
};

}  // namespace dlprim
