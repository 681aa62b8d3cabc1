// Weighted sums of windows of pixels, where height and width have weights of their own: pooling to
// a given size, interpolation, and the gradients of both, which are sums of that kind too. Which
// pixels a result reads is data; the vector code is that of average pooling.
#pragma once

#include <cstdint>
#include <vector>

#include "primitives/tensor/channel_blocks.h"
#include "primitives/tensor/layout.h"

namespace dlprim {

// One axis: neighbours that each result is a weighted sum of, none where it is 0.
struct AxisWindows {
    std::vector<std::int64_t> begins;  // of each result: the first that it reads
    std::vector<std::int64_t> places;  // where its weights begin, and behind them where all end
    std::vector<float> weights;

    std::int64_t results() const { return static_cast<std::int64_t>(begins.size()); }
};

struct Resampling {
    Activations src;
    Format layout = Format::blocked;
    AxisWindows rows;
    AxisWindows columns;
};

// Throws std::invalid_argument where the windows are no tables, or reach beyond src.
void validate(const Resampling& resampling);

// Padding channels are neither read nor written.
void resample(const Resampling& resampling, const void* src, void* dst);

}  // namespace dlprim
