// Weights of a bfloat16 filter with an odd, small number of input channels. Its taps and channels
// are one long row of src, 21 elements for 7x7 on three channels, that begins at any of them; the
// packed weights pair the channels of each tap on their own, so every third multiplication would be
// with nothing. Here pairs run on across taps, in two copies: beginning with the first element and
// with the second, [Kb][2][R][ceil(S * C / 2)][bk][2], so that a piece of a row finds its pairs
// whatever it begins with.
#pragma once

#include <cstdint>

#include "primitives/conv/conv_contraction.h"
#include "primitives/tensor/layout.h"

namespace dlprim {

bool needs_joined_weights(const ConvProblem& problem);

// Pairs of a filter row.
constexpr std::int64_t joined_pairs(std::int64_t filter_width, std::int64_t channels) {
    return (filter_width * channels + 1) / 2;
}

// (g, k, c, r, s); taps that begin with an odd element are in the second copy.
Layout joined_weights_layout(const ConvProblem& problem);
std::int64_t joined_weights_bytes(const ConvProblem& problem);
void join_weights(const ConvProblem& problem, const void* packed, void* joined);

}  // namespace dlprim
