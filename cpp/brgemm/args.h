// The one structure that generated code reads. It is plain data in a fixed order: the emitter
// takes every offset with offsetof, so a field may be added without touching any emitter.
#pragma once

#include <cstdint>
#include <type_traits>

namespace dlprim {

struct BrgemmArgs {
    // Addressing::stride and ::offset: the base of A and B.
    // Addressing::address: an array of `batch` pointers each.
    const void* a = nullptr;
    const void* b = nullptr;
    void* c = nullptr;  // no part of which is A or B: rows of it are stored while others are summed
    std::int64_t batch = 0;
    std::int64_t stride_a = 0;  // bytes from A_i to A_i+1 (Addressing::stride)
    std::int64_t stride_b = 0;
    const std::int64_t* offsets_a = nullptr;  // bytes from `a` to A_i (Addressing::offset)
    const std::int64_t* offsets_b = nullptr;
    // The rest is read when the spec asks for it.
    const float* scale = nullptr;    // one value, or n
    const float* bias = nullptr;     // n values
    const void* residual = nullptr;  // m x n, the type and leading dimension of C; may be C
    std::uint8_t* relu_mask = nullptr;
    std::int32_t zero_point_a = 0;
    std::int32_t zero_point_b = 0;
    std::int64_t a_ahead = 0;  // bytes from A of this call to the A that a prefetch brings
    std::int64_t b_ahead = 0;  // the same of B; with fetch_rows, from `b` to what this call fetches
    std::int64_t gap_stride = 0;  // bytes from plane to plane of the gaps
    // What the AMX tiles of the thread are (amx/kept_tiles.h), left to the next call; without it
    // they are configured and released by each.
    std::uint64_t* tiles = nullptr;
    // Behind all others, so that the code of kernels without them is what it was.
    const std::int32_t* int_bias = nullptr;  // n values
    float residual_scale = 1;
    // In this order, finite, and with their zero point inside the range of C.
    float lowest = 0;
    float highest = 0;
    std::int32_t zero_point_c = 0;
    // Of what the residual is added to.
    float inner_lowest = 0;
    float inner_highest = 0;
    float inner_scale = 0;
    float inner_shift = 0;
};

static_assert(std::is_standard_layout_v<BrgemmArgs>);

}  // namespace dlprim
