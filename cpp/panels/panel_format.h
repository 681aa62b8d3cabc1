// How the weights of a linear layer lie in memory when reading them is all that a product waits
// for, as with one row of src: 64 outputs make a panel, and a panel is one stream of groups along
// k, each the weights, then what they are scaled with. Two streams, or rows of a plain matrix side
// by side, reach half to three quarters of the bandwidth that one stream has.
//
// A group holds words of neighbours along k, 64 columns of them in a row: two of 16 bits, four of
// 8, or eight of 4, where the low halves of the bytes are the first four. Weights of 4 and 8 bits
// are unsigned and have a zero, which is the middle or the column's own.
#pragma once

#include <cstdint>

#include "jit/dtype.h"

namespace dlprim {

inline constexpr int kPanelColumns = 64;

struct PanelFormat {
    std::uint8_t bits = 4;       // of a weight; 16 are bfloat16 and have no scales
    std::uint8_t group = 32;     // weights of a column with one scale: 32, 64 or 128
    bool zero_points = false;    // one byte of each column and group
    DType scales = DType::bf16;  // or f16 or f32, so that those of other libraries stay exact

    bool has_scales() const { return bits < 16; }
    // Of weights without zero points.
    int zero() const { return 1 << (bits - 1); }
    int weights_per_word() const { return 32 / bits; }

    // Bytes from the beginning of a group.
    std::int64_t scales_at() const { return std::int64_t{group} * kPanelColumns * bits / 8; }
    std::int64_t zero_points_at() const {
        return scales_at() + (has_scales() ? kPanelColumns * size_of(scales) : 0);
    }
    std::int64_t group_bytes() const {
        return zero_points_at() + (zero_points ? kPanelColumns : 0);
    }
    // Of the word that holds weight k of a column.
    std::int64_t word_at(std::int64_t k, int column) const {
        return (k / weights_per_word() * kPanelColumns + column) * kWord;
    }

    std::int64_t groups(std::int64_t C) const { return (C + group - 1) / group; }
    std::int64_t panel_bytes(std::int64_t C) const { return groups(C) * group_bytes(); }

    friend bool operator==(const PanelFormat&, const PanelFormat&) = default;
};

constexpr std::int64_t weight_panels(std::int64_t K) {
    return (K + kPanelColumns - 1) / kPanelColumns;
}

}  // namespace dlprim
