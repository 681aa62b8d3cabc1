// A layer of one's own as formulas: a linear layer with relu and its gradient, compiled for the
// shapes of its arrays. Prints the largest error against plain loops.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include <dlprim/primitives/formulas/define.h>

int main() {
    const auto layers = dlprim::define(R"(
        def fcrelu(float(N,C) x, float(K,C) w, float(K) b) -> (y) {
            y(n,k) +=! x(n,c) * w(k,c)
            y(n,k) = fmax(y(n,k) + b(k), 0)
        })");
    const dlprim::Layer& fcrelu = layers.at("fcrelu");
    const std::int64_t N = 6, C = 40, K = 9;
    std::vector<float> x(N * C), w(K * C), b(K), y(N * K), dy(N * K, 1), db(K);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(i));
    for (std::size_t i = 0; i < w.size(); ++i) w[i] = std::cos(static_cast<float>(i));
    const auto forward = fcrelu.compile({{N, C}, {K, C}, {K}});
    forward.run({x.data(), w.data(), b.data()}, {y.data()});
    const auto backward = fcrelu.gradient("b").compile({{N, C}, {K, C}, {K}, {N, K}});
    backward.run({x.data(), w.data(), b.data(), dy.data()}, {db.data()});

    float error = 0;
    for (std::int64_t k = 0; k < K; ++k) {
        float active = 0;
        for (std::int64_t n = 0; n < N; ++n) {
            double sum = 0;
            for (std::int64_t c = 0; c < C; ++c) sum += double(x[n * C + c]) * w[k * C + c];
            error =
                std::max(error, std::abs(y[n * K + k] - static_cast<float>(std::max(sum, 0.0))));
            active += sum > 0 ? 1 : 0;
        }
        error = std::max(error, std::abs(db[k] - active));
    }
    std::printf("fcrelu is within %.1e\n%s", error, forward.described().c_str());
    return error < 1e-4F ? 0 : 1;
}
