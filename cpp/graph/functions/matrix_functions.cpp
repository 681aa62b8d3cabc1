#include "graph/functions/matrix_functions.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <type_traits>

#include "graph/network.h"
#include "primitives/tensor/parallel.h"
#include "primitives/tensor/workspace.h"

namespace dlprim {
namespace {

template <class T>
RunOfCall products_of(const Network& network, const ArrayCall& call) {
    const NetworkTensor &a = network.tensor(call.inputs[0]), &b = network.tensor(call.inputs[1]);
    const std::int64_t batch = a.shape[0], m = a.shape[1], k = a.shape[2], n = b.shape[2];
    const int first = call.inputs[0], second = call.inputs[1], result = call.outputs[0];
    return [=](const Addresses& at) {
        const T *const x = at[first], *const y = at[second];
        T* const dst = at[result];
        const WorkOf work(static_cast<double>(4 * batch * m * n * k), 0);
        parallel_for(batch * m, [&](std::int64_t row) {
            T* const own = dst + row * n;
            std::fill_n(own, n, T{0});
            for (std::int64_t i = 0; i < k; ++i) {
                const T factor = x[row * k + i];
                const T* const from = y + (row / m * k + i) * n;
                for (std::int64_t j = 0; j < n; ++j) own[j] += factor * from[j];
            }
        });
    };
}

// In place, by rows with the greatest pivots; false where a pivot is 0 or no number.
bool invert(double* a, std::int64_t n, std::int64_t* order) {
    std::iota(order, order + n, 0);
    for (std::int64_t step = 0; step < n; ++step) {
        std::int64_t pivot = step;
        for (std::int64_t row = step + 1; row < n; ++row) {
            if (std::abs(a[row * n + step]) > std::abs(a[pivot * n + step])) pivot = row;
        }
        if (pivot != step) {
            std::swap_ranges(a + pivot * n, a + (pivot + 1) * n, a + step * n);
            std::swap(order[pivot], order[step]);
        }
        double* const own = a + step * n;
        const double by = own[step];
        if (!(by != 0)) return false;
        own[step] = 1;
        for (std::int64_t i = 0; i < n; ++i) own[i] /= by;
        for (std::int64_t row = 0; row < n; ++row) {
            if (row == step) continue;
            double* const other = a + row * n;
            const double factor = other[step];
            other[step] = 0;
            for (std::int64_t i = 0; i < n; ++i) other[i] -= factor * own[i];
        }
    }
    return true;
}

template <class T>
void invert_one(const T* src, T* dst, std::int64_t n) {
    const WorkspacePool::Lease own(WorkspacePool::lasting(), 8 * (n * n + n));
    auto* const a = reinterpret_cast<double*>(own.data());
    auto* const order = reinterpret_cast<std::int64_t*>(a + n * n);
    std::copy_n(src, n * n, a);
    if (!invert(a, n, order)) {
        std::fill_n(dst, n * n, std::numeric_limits<T>::quiet_NaN());
        return;
    }
    for (std::int64_t row = 0; row < n; ++row) {
        for (std::int64_t i = 0; i < n; ++i) {
            dst[row * n + order[i]] = static_cast<T>(a[row * n + i]);
        }
    }
}

template <class T>
RunOfCall inverse_of(const Network& network, const ArrayCall& call) {
    const NetworkTensor& x = network.tensor(call.inputs[0]);
    const std::int64_t n = x.shape.back(), size = n * n;
    const std::int64_t count = size == 0 ? 0 : x.elements() / size;
    const int src = call.inputs[0], dst = call.outputs[0];
    return [=](const Addresses& at) {
        const T* const from = at[src];
        T* const to = at[dst];
        const WorkOf all(static_cast<double>(2 * count * size * n), 0);
        parallel_for(count, [&](std::int64_t i) { invert_one(from + i * size, to + i * size, n); });
    };
}

template <class Token>
void block_row(const Token* tokens, std::int64_t count, std::int64_t size, float* scores,
               std::int64_t words) {
    const Token* const behind = tokens + count - (size - 1);
    for (std::int64_t first = 0; first + size <= count; ++first) {
        if (!std::equal(behind, tokens + count, tokens + first)) continue;
        const auto found = static_cast<std::int64_t>(tokens[first + size - 1]);
        if (found < 0 || found >= words) {
            throw std::out_of_range("a token is " + std::to_string(found) + ", expected one of " +
                                    std::to_string(words) + " scores");
        }
        scores[found] = -std::numeric_limits<float>::infinity();
    }
}

}  // namespace

RunOfCall whole_products(const Network& network, const ArrayCall& call) {
    bool fits = call.inputs.size() == 2 && call.outputs.size() == 1;
    if (fits) {
        const NetworkTensor &a = network.tensor(call.inputs[0]),
                            &b = network.tensor(call.inputs[1]),
                            &c = network.tensor(call.outputs[0]);
        using Shape = std::vector<std::int64_t>;
        fits = a.shape.size() == 3 && b.shape.size() == 3 && a.shape[0] == b.shape[0] &&
               a.shape[2] == b.shape[1] && c.shape == Shape{a.shape[0], a.shape[1], b.shape[2]} &&
               a.dtype == b.dtype && a.dtype == c.dtype &&
               (a.dtype == "int32" || a.dtype == "int64");
    }
    require_fit(fits, network, call, "(B, m, k), (B, k, n) and (B, m, n) of int32 or int64");
    return network.tensor(call.inputs[0]).dtype == "int32"
               ? products_of<std::uint32_t>(network, call)
               : products_of<std::uint64_t>(network, call);
}

RunOfCall inverses(const Network& network, const ArrayCall& call) {
    bool fits = call.inputs.size() == 1 && call.outputs.size() == 1;
    const NetworkTensor x = fits ? network.tensor(call.inputs[0]) : NetworkTensor();
    fits = fits && (x.dtype == "float32" || x.dtype == "float64") && x.shape.size() >= 2 &&
           x.shape[x.shape.size() - 2] == x.shape.back() &&
           network.tensor(call.outputs[0]).shape == x.shape &&
           network.tensor(call.outputs[0]).dtype == x.dtype;
    require_fit(fits, network, call, "square matrices of float32 or float64, twice");
    return x.dtype == "float32" ? inverse_of<float>(network, call)
                                : inverse_of<double>(network, call);
}

RunOfCall other_ngrams(const Network& network, const ArrayCall& call) {
    bool fits = call.inputs.size() == 2 && call.outputs.size() == 1;
    const NetworkTensor tokens = fits ? network.tensor(call.inputs[0]) : NetworkTensor();
    const NetworkTensor scores = fits ? network.tensor(call.inputs[1]) : NetworkTensor();
    const double given = number_of(call, "size");
    fits = fits && tokens.shape.size() == 2 && scores.shape.size() == 2 &&
           tokens.shape[0] == scores.shape[0] && scores.dtype == "float32" &&
           (tokens.dtype == "int32" || tokens.dtype == "int64") && given >= 1 &&
           given <= static_cast<double>(tokens.shape[1]) &&
           network.tensor(call.outputs[0]).shape == scores.shape &&
           network.tensor(call.outputs[0]).dtype == scores.dtype;
    require_fit(fits, network, call, "tokens (N, S), and scores (N, V) of float32 twice");
    const auto size = static_cast<std::int64_t>(given);
    const std::int64_t rows = tokens.shape[0], count = tokens.shape[1], words = scores.shape[1];
    const bool is_wide = tokens.dtype == "int64";
    return [=](const Addresses& at) {
        const float* const src = at[call.inputs[1]];
        float* const dst = at[call.outputs[0]];
        std::copy_n(src, rows * words, dst);
        for (std::int64_t row = 0; row < rows; ++row) {
            float* const own = dst + row * words;
            const Address line{at[call.inputs[0]].data + row * count * tokens.element};
            if (is_wide) {
                block_row<std::int64_t>(line, count, size, own, words);
            } else {
                block_row<std::int32_t>(line, count, size, own, words);
            }
        }
    };
}

}  // namespace dlprim
