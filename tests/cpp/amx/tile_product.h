// The products of two tiles, to the bits that CPUs with AMX give.
#pragma once

#include <array>
#include <cstdint>

namespace dlprim::testing {

// What lies outside of `rows` and `row_bytes` is zero. Rows are aligned for whole vectors.
struct Tile {
    static constexpr int kMostRows = 16;
    static constexpr int kMostRowBytes = 64;
    int rows = 0;
    int row_bytes = 0;
    alignas(64) std::uint8_t bytes[kMostRows][kMostRowBytes] = {};
};

// result[m][n] += a[m][2k] * b[k][2n] + a[m][2k + 1] * b[k][2n + 1] over k in float32: even and odd
// elements are summed apart, each in order of k and with fused multiplications, then added to each
// other, and that to the result. Subnormal numbers are zeros, both ways.
void add_bf16_product(Tile& result, const Tile& a, const Tile& b);

// result[m][n] += sum of a[m][4k + i] * b[k][4n + i] over k and i, modulo 2^32.
void add_int8_product(Tile& result, const Tile& a, const Tile& b, bool a_signed, bool b_signed);

}  // namespace dlprim::testing
