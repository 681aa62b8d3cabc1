// The geometry of a two-dimensional convolution as a value: what the caller fixed, and the extents
// that follow from it. Everything that can be impossible about it is refused here, once, with the
// numbers in the sentence; whatever is built on a validated shape computes without checks.
#pragma once

#include <cstdint>

namespace dlprim {

struct ConvShape {
    std::int64_t N = 0;  // minibatch, may be 0
    std::int64_t C = 0;  // input channels, of all groups
    std::int64_t H = 0;
    std::int64_t W = 0;
    std::int64_t K = 0;  // output channels, of all groups
    std::int64_t R = 0;  // filter height
    std::int64_t S = 0;  // filter width
    std::int64_t stride_h = 1;
    std::int64_t stride_w = 1;
    std::int64_t pad_top = 0;
    std::int64_t pad_bottom = 0;
    std::int64_t pad_left = 0;
    std::int64_t pad_right = 0;
    std::int64_t dilation_h = 1;
    std::int64_t dilation_w = 1;
    std::int64_t groups = 1;

    std::int64_t P() const {
        return (H + pad_top + pad_bottom - (R - 1) * dilation_h - 1) / stride_h + 1;
    }
    std::int64_t Q() const {
        return (W + pad_left + pad_right - (S - 1) * dilation_w - 1) / stride_w + 1;
    }
    std::int64_t group_C() const { return C / groups; }
    std::int64_t group_K() const { return K / groups; }
    // One filter per channel: no product of matrices, so it has a nest of its own. Longer rows of a
    // filter would take long to generate.
    bool is_depthwise() const {
        constexpr std::int64_t kMostInRow = 64;
        return groups > 1 && groups == C && groups == K && S <= kMostInRow;
    }
    // Multiplications and additions of one pass, taps in the padding included.
    double flops() const;

    friend bool operator==(const ConvShape&, const ConvShape&) = default;
};

// `shape` itself. Throws std::invalid_argument when an extent, stride or dilation is below 1, a
// padding is negative, groups divide C or K with a remainder, the filter does not fit into the
// padded input, or a tensor would exceed 2^40 elements.
ConvShape validated(const ConvShape& shape);

}  // namespace dlprim
