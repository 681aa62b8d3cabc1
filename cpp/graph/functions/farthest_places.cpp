#include "graph/functions/farthest_places.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>

#include "graph/elements/element.h"
#include "graph/network.h"
#include "primitives/tensor/parallel.h"

namespace dlprim {
namespace {

constexpr std::int64_t kResults = 256;  // of a task

struct Line {
    std::int64_t count = 0, stride = 0;  // elements
    bool is_least = false, is_last = false;
};

// Whether x takes the place of the best so far; what is no number stays.
template <class T>
bool is_farther(T x, T best, const Line& line) {
    if (best != best) return line.is_last && x != x;
    if (x != x) return true;
    if (line.is_last && x == best) return true;
    return line.is_least ? x < best : x > best;
}

// Of one line, whatever is in it.
template <class T>
std::int64_t farthest(const T* from, const Line& line) {
    std::int64_t place = 0;
    T best = from[0];
    for (std::int64_t i = 1; i < line.count; ++i) {
        const T x = from[i * line.stride];
        if (is_farther(x, best, line)) {
            best = x;
            place = i;
        }
    }
    return place;
}

constexpr std::size_t kLanes = 32;

// The farthest of each lane of rows that lie so many elements apart; whether all are numbers.
template <bool kLeast, class T>
bool best_of_lanes(const T* from, std::int64_t rows, std::int64_t stride,
                   std::array<T, kLanes>& best) {
    std::array<T, kLanes> lost{};
    std::copy_n(from, kLanes, best.begin());
    for (std::int64_t row = 0; row < rows; ++row) {
        const T* const own = from + row * stride;
        for (std::size_t i = 0; i < kLanes; ++i) {
            const T x = own[i];
            best[i] = (kLeast ? x < best[i] : x > best[i]) ? x : best[i];
            if constexpr (kIsReal<T>) lost[i] = x != x ? T{1} : lost[i];
        }
    }
    return std::all_of(lost.begin(), lost.end(), [](T it) { return it == 0; });
}

// Of as many neighbouring lines as there are lanes.
template <class T>
void farthest_of_lanes(const T* from, const Line& line, std::int64_t* to) {
    std::array<T, kLanes> best;
    const bool is_known = line.is_least ? best_of_lanes<true>(from, line.count, line.stride, best)
                                        : best_of_lanes<false>(from, line.count, line.stride, best);
    if (!is_known) {
        for (std::size_t i = 0; i < kLanes; ++i) to[i] = farthest(from + i, line);
        return;
    }
    std::array<T, kLanes> at{};
    for (std::int64_t step = 0; step < line.count; ++step) {
        const std::int64_t row = line.is_last ? step : line.count - 1 - step;
        const T* const own = from + row * line.stride;
        for (std::size_t i = 0; i < kLanes; ++i) {
            at[i] = own[i] == best[i] ? static_cast<T>(static_cast<Computed<T>>(row)) : at[i];
        }
    }
    for (std::size_t i = 0; i < kLanes; ++i) to[i] = static_cast<std::int64_t>(at[i]);
}

// Of one line whose elements are neighbours.
template <class T>
std::int64_t farthest_of_row(const T* from, const Line& line) {
    const auto lanes = static_cast<std::int64_t>(kLanes), rows = line.count / lanes;
    if (rows < 2) return farthest(from, line);
    std::array<T, kLanes> best;
    const bool is_known = line.is_least ? best_of_lanes<true>(from, rows, lanes, best)
                                        : best_of_lanes<false>(from, rows, lanes, best);
    if (!is_known) return farthest(from, line);
    T whole = line.is_least ? *std::min_element(best.begin(), best.end())
                            : *std::max_element(best.begin(), best.end());
    for (std::int64_t i = rows * lanes; i < line.count; ++i) {
        if (from[i] != from[i]) return farthest(from, line);
        if (line.is_least ? from[i] < whole : from[i] > whole) whole = from[i];
    }
    // Both stay inside while another thread writes what they read.
    std::int64_t place = line.count - 1;
    if (!line.is_last) return std::find(from, from + place, whole) - from;
    while (place > 0 && from[place] != whole) --place;
    return place;
}

template <class T>
RunOfCall farthest_of(const Network& network, const ArrayCall& call) {
    const NetworkTensor& x = network.tensor(call.inputs[0]);
    const auto axis = static_cast<std::size_t>(number_of(call, "axis"));
    Line line{.count = x.shape[axis],
              .stride = 1,
              .is_least = call.function == "argmin",
              .is_last = number_of(call, "last") != 0};
    for (std::size_t i = axis + 1; i < x.shape.size(); ++i) line.stride *= x.shape[i];
    const std::int64_t results = network.tensor(call.outputs[0]).elements();
    const auto work = static_cast<double>(x.bytes());
    const int src = call.inputs[0], dst = call.outputs[0];
    // Places are counted in lanes of the elements' type, which holds so many exactly.
    const int digits = std::min(std::numeric_limits<T>::digits, 62);
    const bool has_lanes = line.count <= std::int64_t{1} << digits;
    return [=](const Addresses& at) {
        const T* const from = at[src];
        std::int64_t* const to = at[dst];
        const WorkOf all(0, work);
        parallel_for((results + kResults - 1) / kResults, [&](std::int64_t piece) {
            const std::int64_t end = std::min(results, (piece + 1) * kResults);
            const auto lanes = static_cast<std::int64_t>(kLanes);
            for (std::int64_t i = piece * kResults; i < end; ++i) {
                const std::int64_t beside = i % line.stride;
                const T* const own = from + i / line.stride * line.count * line.stride + beside;
                if (line.stride == 1) {
                    to[i] = farthest_of_row(own, line);
                } else if (has_lanes && std::min(line.stride - beside, end - i) >= lanes) {
                    farthest_of_lanes(own, line, to + i);
                    i += lanes - 1;
                } else {
                    to[i] = farthest(own, line);
                }
            }
        });
    };
}

}  // namespace

RunOfCall farthest_places(const Network& network, const ArrayCall& call) {
    bool fits = call.inputs.size() == 1 && call.outputs.size() == 1;
    const NetworkTensor x = fits ? network.tensor(call.inputs[0]) : NetworkTensor();
    const double axis = number_of(call, "axis");
    fits = fits && axis >= 0 && axis < static_cast<double>(x.shape.size()) && x.elements() > 0 &&
           network.tensor(call.outputs[0]).dtype == "int64" &&
           network.tensor(call.outputs[0]).elements() * x.shape[static_cast<std::size_t>(axis)] ==
               x.elements();
    require_fit(fits, network, call, "numbers, and a place of int64 for each line along axis");
    return with_element_type(x.dtype, [&](auto type) {
        return farthest_of<typename decltype(type)::Type>(network, call);
    });
}

}  // namespace dlprim
