#include "primitives/layers/pooling.h"

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <string>

#include "primitives/tensor/partition.h"

namespace dlprim {
namespace {

constexpr std::int64_t kMostTaps = 256;

// One axis: which inputs a result sees, and which results an input is seen by.
struct Axis {
    std::int64_t src, dst, window, stride, padding;

    // Of the first input that a result sees in its window.
    std::int64_t first_of(std::int64_t result) const { return result * stride - padding; }
    Range inputs(std::int64_t result) const {
        const std::int64_t first = first_of(result);
        return {std::max<std::int64_t>(first, 0), std::min(first + window, src)};
    }
    Range results(std::int64_t input) const {
        const std::int64_t place = input + padding;
        const std::int64_t first = place < window ? 0 : (place - window) / stride + 1;
        return {first, std::max(first, std::min(place / stride + 1, dst))};
    }

    // What results see of inputs, or inputs are seen by; number(result, input) stands beside it.
    template <class Number>
    AxisWindows windows(bool forward, const Number& number) const {
        AxisWindows found;
        // All room at once, so that what has no room for it says so before it is filled.
        const auto count = static_cast<std::size_t>(forward ? dst : src);
        found.begins.reserve(count);
        found.places.reserve(count + 1);
        found.weights.reserve(static_cast<std::size_t>(dst * std::min(window, src)));
        for (std::int64_t i = 0; i < (forward ? dst : src); ++i) {
            const Range seen = forward ? inputs(i) : results(i);
            found.begins.push_back(seen.begin);
            found.places.push_back(static_cast<std::int64_t>(found.weights.size()));
            for (std::int64_t other = seen.begin; other < seen.end; ++other) {
                found.weights.push_back(
                    static_cast<float>(forward ? number(i, other) : number(other, i)));
            }
        }
        found.places.push_back(static_cast<std::int64_t>(found.weights.size()));
        return found;
    }
    // Tap by tap, `step` from one to the next.
    AxisWindows taps(bool forward, std::int64_t step) const {
        return windows(forward, [&](std::int64_t result, std::int64_t input) {
            return (input - first_of(result)) * step;
        });
    }
    AxisWindows shares(bool forward, bool padding_counts) const {
        return windows(forward, [&](std::int64_t result, std::int64_t) {
            return 1.0F / static_cast<float>(padding_counts ? window : inputs(result).size());
        });
    }
};

Windows windows_of(const Pooling& it, bool forward) {
    const Axis rows{it.src.height, it.P(), it.R, it.stride_h, it.pad_h};
    const Axis columns{it.src.width, it.Q(), it.S, it.stride_w, it.pad_w};
    const Activations src = forward ? it.src : it.dst();
    if (it.kind == PoolingKind::max) {
        return {src, it.layout, rows.taps(forward, it.S), columns.taps(forward, 1)};
    }
    const bool padding_counts = it.kind == PoolingKind::average_padded;
    return {src, it.layout, rows.shares(forward, padding_counts),
            columns.shares(forward, padding_counts)};
}

void refuse(const std::string& sentence) { throw std::invalid_argument(sentence); }

void validate_axis(const Axis& axis, const std::string& name) {
    if (axis.window < 1 || axis.stride < 1) {
        refuse("kernel and stride in " + name + " are " + std::to_string(axis.window) + " and " +
               std::to_string(axis.stride) + ", expected at least 1");
    }
    if (axis.padding < 0 || 2 * axis.padding > axis.window) {
        refuse("padding in " + name + " is " + std::to_string(axis.padding) +
               ", expected at most half of the kernel, " + std::to_string(axis.window));
    }
    if (axis.window > axis.src + 2 * axis.padding) {
        refuse("the kernel has " + name + " " + std::to_string(axis.window) +
               ", which exceeds the padded input, " + std::to_string(axis.src + 2 * axis.padding));
    }
}

}  // namespace

void validate(const Pooling& it) {
    validate_axis({it.src.height, 0, it.R, it.stride_h, it.pad_h}, "height");
    validate_axis({it.src.width, 0, it.S, it.stride_w, it.pad_w}, "width");
    if (it.kind == PoolingKind::max && it.R * it.S > kMostTaps) {
        refuse("the kernel has " + std::to_string(it.R * it.S) +
               " elements, expected at most 256, whose numbers fit in a byte");
    }
}

Resampling pool_forward(const Pooling& it) {
    return {windows_of(it, true), it.kind == PoolingKind::max ? Fold::largest : Fold::sum};
}

Resampling pool_backward(const Pooling& it) {
    return {windows_of(it, false), it.kind == PoolingKind::max ? Fold::chosen : Fold::sum};
}

}  // namespace dlprim
