// Operands brought into the form that kernels read: B of low precision in groups of neighbours
// along k that share a 32-bit word (VNNI form), float32 rounded to bfloat16, weights transposed.
// Packing reads and writes everything once, so it is worth its cost only if it runs at the speed
// of a plain copy. Everything here moves or rounds
// single elements: the result is the same bits at every ISA level and for any number of threads.
#pragma once

#include <cstdint>

#include "jit/dtype.h"

namespace dlprim {

// A batch of matrices B, each k x n, from plain storage to [ceil(k / g)][n][g] with
// g = elements_per_word(to). The types are equal, or float32 is rounded to bfloat16.
struct Packing {
    DType from = DType::f32;
    DType to = DType::f32;
    std::int64_t k = 0;
    std::int64_t n = 0;
    bool transposed = false;  // B is stored (n, k), as the weights of a linear layer are
    const void* src = nullptr;
    std::int64_t ld_src = 0;  // elements from row to row of the storage
    void* dst = nullptr;
    std::int64_t ld_dst = 0;  // columns from one row of groups to the next
    std::int64_t batch = 1;
    std::int64_t stride_src = 0;  // bytes from matrix to matrix
    std::int64_t stride_dst = 0;
};

// The last group is filled up with zeros; columns beyond n are left alone. src and dst must not
// overlap. Throws std::invalid_argument for any other pair of types and for int32.
void pack_b(const Packing& packing);

// Rounds to nearest, ties to even, subnormal numbers as well; a NaN keeps its sign and the upper
// bits of its payload and becomes quiet. Differs from the instruction vcvtneps2bf16 in that
// nothing is flushed to zero.
void round_to_bf16(const float* src, std::uint16_t* dst, std::int64_t count);

// Exact.
void widen_to_f32(const std::uint16_t* src, float* dst, std::int64_t count);

}  // namespace dlprim
