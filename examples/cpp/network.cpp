// A network of two layers as one call: its steps share memory by the plan, and a run allocates
// nothing. Prints the plan.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include <dlprim/graph/network.h>
#include <dlprim/primitives/formulas/define.h>

int main() {
    const auto layers = dlprim::define(R"(
        def fcrelu(float(N,C) x, float(K,C) w) -> (y) {
            y(n,k) +=! x(n,c) * w(k,c)
            y(n,k) = fmax(y(n,k), 0)
        })");
    const std::int64_t N = 4, C = 8, K = 6;
    const auto dense = [](std::int64_t rows, std::int64_t columns) {
        return dlprim::dense_tensor("float32", 4, {rows, columns});
    };
    const std::vector<float> w0(static_cast<std::size_t>(K * C), 0.5F);
    const std::vector<float> w1(static_cast<std::size_t>(C * K), 0.25F);

    dlprim::Network network;
    const int x = network.input(dense(N, C));
    const int weights[] = {network.constant(dense(K, C), w0.data()),
                           network.constant(dense(C, K), w1.data())};
    const int hidden = network.temporary(dense(N, K)), y = network.temporary(dense(N, C));
    const auto add = [&](const char* label, const dlprim::CompiledLayer& layer, int src, int w,
                         int dst) {
        dlprim::NetworkStep step{.kind = "formula", .label = label, .reads = {src, w}};
        step.writes = {dst};
        step.flops = layer.flops();
        step.run = [=](const dlprim::Addresses& at) { layer.run({at[src], at[w]}, {at[dst]}); };
        network.add(step);
    };
    add("first", layers.at("fcrelu").compile({{N, C}, {K, C}}), x, weights[0], hidden);
    add("second", layers.at("fcrelu").compile({{N, K}, {C, K}}), hidden, weights[1], y);
    network.finish({y});

    const std::vector<float> ones(static_cast<std::size_t>(N * C), 1);
    std::vector<float> result(ones.size());
    network.run({{ones.data()}, {result.data()}});
    std::printf("%s", network.described().c_str());
    const float expected = 0.25F * K * 0.5F * C;
    for (const float it : result) {
        if (std::abs(it - expected) > 1e-5F) return 1;
    }
    return 0;
}
