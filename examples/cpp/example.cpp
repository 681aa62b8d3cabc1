// C = relu(sum_i A_i * B_i + bias) with dlprim's kernel, checked against plain loops and timed.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <vector>

#include <dlprim/brgemm/brgemm.h>

namespace {

constexpr std::int64_t m = 28, n = 64, k = 64, batch = 9;

// Small integers, so that every order of summation gives the same float.
std::vector<float> integers(std::int64_t count) {
    std::vector<float> values;
    for (std::int64_t i = 0; i < count; ++i) values.push_back(static_cast<float>(i * 7 % 11 - 5));
    return values;
}

float expected(const float* a, const float* b, float bias, std::int64_t row, std::int64_t column) {
    float sum = bias;
    for (std::int64_t i = 0; i < batch; ++i) {
        for (std::int64_t step = 0; step < k; ++step) {
            sum += a[(i * m + row) * k + step] * b[(i * k + step) * n + column];
        }
    }
    return std::max(sum, 0.0F);
}

}  // namespace

int main() {
    const auto a = integers(batch * m * k), b = integers(batch * k * n), bias = integers(n);
    std::vector<float> c(m * n);

    // A spec goes in, a kernel comes out: generated for this machine on first use, then cached.
    const auto kernel = dlprim::brgemm({
        .m = m,
        .n = n,
        .k = k,
        .epilogue = {.bias = true, .activation = dlprim::Activation::relu},
    });
    const dlprim::BrgemmArgs args{
        .a = a.data(),
        .b = b.data(),
        .c = c.data(),
        .batch = batch,
        .stride_a = m * k * sizeof(float),  // bytes from one A_i to the next
        .stride_b = k * n * sizeof(float),
        .bias = bias.data(),
    };
    (*kernel)(args);

    for (std::int64_t i = 0; i < m * n; ++i) {
        const float right = expected(a.data(), b.data(), bias[i % n], i / n, i % n);
        if (c[i] == right) continue;
        std::printf("C[%ld, %ld] is %g, expected %g\n", i / n, i % n, c[i], right);
        return 1;
    }

    constexpr int repeats = 10000;
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < repeats; ++i) (*kernel)(args);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    std::printf("%s: right, %.1f GFLOP/s\n", kernel->name().c_str(),
                kernel->flops(batch) * repeats / seconds.count() * 1e-9);
}
