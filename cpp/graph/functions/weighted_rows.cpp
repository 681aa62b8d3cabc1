#include "graph/functions/weighted_rows.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "graph/network.h"
#include "primitives/layers/listed_rows.h"
#include "primitives/tensor/parallel.h"
#include "primitives/tensor/partition.h"

namespace dlprim {
namespace {

constexpr std::int64_t kPiece = 64;  // places of a task
constexpr std::int64_t kMostTaps = 4;

template <class T>
struct Tap {
    std::int64_t row;
    T weight;
};

struct Reading {
    ArrayCall call;
    std::vector<std::int64_t> extents;
    std::int64_t taps = 1, samples = 0, places = 0, channels = 0;

    // What one place reads, of the first axis outermost.
    template <class T>
    void find(const Addresses& at, std::int64_t place, std::vector<Tap<T>>& found,
              std::vector<Tap<T>>& next) const {
        found.assign(1, {0, T(1)});
        for (std::size_t axis = 0; axis < extents.size(); ++axis) {
            next.clear();
            for (const Tap<T>& before : found) {
                for (std::int64_t tap = 0; tap < taps; ++tap) {
                    const std::size_t input = 1 + 2 * (axis * static_cast<std::size_t>(taps) +
                                                       static_cast<std::size_t>(tap));
                    const T* const where = at[call.inputs[input]];
                    const T* const weight = at[call.inputs[input + 1]];
                    const T line = where[place];
                    if (!(line > T(-1) && line < static_cast<T>(extents[axis]))) continue;
                    next.push_back({before.row * extents[axis] + static_cast<std::int64_t>(line),
                                    before.weight * weight[place]});
                }
            }
            found.swap(next);
        }
    }

    void sum(const double* rows, const std::vector<Tap<double>>& found, double* dst) const {
        std::fill_n(dst, channels, 0.0);
        for (const Tap<double>& tap : found) {
            const double* const row = rows + tap.row * channels;
            for (std::int64_t c = 0; c < channels; ++c) dst[c] += tap.weight * row[c];
        }
    }

    template <class T>
    void run(const Addresses& at) const {
        const Blocks pieces{places, kPiece};
        std::int64_t pixels = 1;
        for (const std::int64_t extent : extents) pixels *= extent;
        parallel_for(samples * pieces.count(), [&](std::int64_t task) {
            const std::int64_t sample = task / pieces.count();
            const Range range = pieces.at(task % pieces.count());
            const T* const x = at[call.inputs[0]];
            T* const y = at[call.outputs[0]];
            const T* const rows = x + sample * pixels * channels;
            T* const dst = y + (sample * places + range.begin) * channels;
            std::vector<Tap<T>> found, next;
            std::vector<ListedRow> list;
            std::array<std::int64_t, kPiece> counts = {};
            for (std::int64_t i = 0; i < range.size(); ++i) {
                find(at, sample * places + range.begin + i, found, next);
                if constexpr (std::is_same_v<T, double>) {
                    sum(rows, found, dst + i * channels);
                } else {
                    for (const Tap<T>& tap : found) {
                        list.push_back({tap.row * channels, tap.weight, 0});
                    }
                    counts[static_cast<std::size_t>(i)] = std::ssize(found);
                }
            }
            if constexpr (std::is_same_v<T, float>) {
                sum_listed({rows, channels, list.data(), counts.data(), range.size(), dst});
            }
        });
    }
};

}  // namespace

RunOfCall weighted_rows(const Network& network, const ArrayCall& call) {
    const auto inputs = std::ssize(call.inputs);
    const bool has_rows = inputs > 0 && call.outputs.size() == 1;
    const NetworkTensor x = has_rows ? network.tensor(call.inputs[0]) : NetworkTensor();
    const NetworkTensor y = has_rows ? network.tensor(call.outputs[0]) : NetworkTensor();
    const auto axes = static_cast<std::int64_t>(x.shape.size()) - 2;
    const auto taps = static_cast<std::int64_t>(number_of(call, "taps"));
    using Shape = std::vector<std::int64_t>;
    bool fits = axes > 0 && taps > 0 && taps <= kMostTaps && inputs == 1 + 2 * axes * taps &&
                (x.dtype == "float32" || x.dtype == "float64") && y.dtype == x.dtype &&
                y.shape.size() == 3 && y.shape[0] == x.shape[0] && y.shape[2] == x.shape.back();
    for (std::int64_t i = 1; fits && i < inputs; ++i) {
        const NetworkTensor& it = network.tensor(call.inputs[static_cast<std::size_t>(i)]);
        fits = it.dtype == x.dtype && it.shape == Shape{y.shape[0], y.shape[1], 1};
    }
    require_fit(
        fits, network, call,
        "(N, extents.., C) and pairs of (N, P, 1) for each tap of each axis, and (N, P, C)");
    const Reading it{.call = call,
                     .extents = Shape(x.shape.begin() + 1, x.shape.end() - 1),
                     .taps = taps,
                     .samples = x.shape[0],
                     .places = y.shape[1],
                     .channels = y.shape[2]};
    if (x.dtype == "float64") return [it](const Addresses& at) { it.run<double>(at); };
    return [it](const Addresses& at) { it.run<float>(at); };
}

}  // namespace dlprim
