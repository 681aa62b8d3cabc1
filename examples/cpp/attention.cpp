// Attention of two heads on arrays whose positions hold their heads side by side, as projections
// leave them. Prints the largest error against plain loops.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <vector>

#include <dlprim/primitives/attention/attention.h>

int main() {
    const std::int64_t S = 10, H = 2, D = 16;
    const dlprim::AttentionStrides strides{.batch = S * H * D, .head = D, .row = H * D};
    dlprim::AttentionSpec spec{.heads = H, .kv_heads = H, .queries = S, .keys = S};
    spec.head_size = spec.value_size = D;
    spec.q = spec.k = spec.v = spec.out = strides;
    spec.scale = 1 / std::sqrt(static_cast<float>(D));
    spec.causal = true;
    const dlprim::Attention attention(spec);

    const auto size = static_cast<std::size_t>(S * H * D);
    std::vector<float> q(size), k(size), v(size), out(size);
    for (std::size_t i = 0; i < size; ++i) {
        q[i] = std::sin(static_cast<float>(i));
        k[i] = std::cos(static_cast<float>(2 * i));
        v[i] = std::sin(static_cast<float>(3 * i));
    }
    attention.forward({.q = q.data(), .k = k.data(), .v = v.data(), .out = out.data()});

    const auto at = [&](std::int64_t s, std::int64_t h, std::int64_t d) {
        return static_cast<std::size_t>((s * H + h) * D + d);
    };
    double error = 0;
    for (std::int64_t h = 0; h < H; ++h) {
        for (std::int64_t i = 0; i < S; ++i) {
            std::vector<double> sums(static_cast<std::size_t>(D));
            double total = 0;
            for (std::int64_t j = 0; j <= i; ++j) {
                double score = 0;
                for (std::int64_t d = 0; d < D; ++d)
                    score += double(q[at(i, h, d)]) * k[at(j, h, d)];
                const double power = std::exp(score * spec.scale);
                total += power;
                for (std::int64_t d = 0; d < D; ++d) {
                    sums[static_cast<std::size_t>(d)] += power * v[at(j, h, d)];
                }
            }
            for (std::int64_t d = 0; d < D; ++d) {
                const double expected = sums[static_cast<std::size_t>(d)] / total;
                error = std::max(error, std::abs(out[at(i, h, d)] - expected));
            }
        }
    }
    std::printf("attention is within %.1e\n", error);
    return error < 1e-5 ? 0 : 1;
}
