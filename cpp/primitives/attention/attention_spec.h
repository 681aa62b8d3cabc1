// What is asked of attention, as a value: out = softmax(scale * q * k^T + mask) * v for every head
// of every sequence. Arrays may lie in any order of their axes but the last one, whose elements are
// neighbours: projections leave heads inside of positions, and are read and written there.
#pragma once

#include <cstdint>
#include <optional>

#include "jit/dtype.h"

namespace dlprim {

// From row to row at most, and in one: what a kernel takes.
inline constexpr std::int64_t kMostAttentionElements = std::int64_t{1} << 24;

// Elements from one to the next.
struct AttentionStrides {
    std::int64_t batch = 0;
    std::int64_t head = 0;
    std::int64_t row = 0;  // a query, or a key

    friend bool operator==(const AttentionStrides&, const AttentionStrides&) = default;
};

struct AttentionSpec {
    DType dtype = DType::f32;  // of q, k, v and out: float32 or bfloat16
    std::int64_t batch = 1;
    std::int64_t heads = 1;  // of q and out, a multiple of
    std::int64_t kv_heads = 1;
    std::int64_t queries = 0;
    std::int64_t keys = 0;
    std::int64_t head_size = 0;   // of q and k, at least 1
    std::int64_t value_size = 0;  // of v and out
    AttentionStrides q = {};      // rows no nearer than the head size
    AttentionStrides k = {};
    AttentionStrides v = {};
    AttentionStrides out = {};
    // Strides are 0 where a mask is the same for all. float32 and bfloat16 are added, before the
    // softmax; uint8 is 0 where a query does not see a key, else 1.
    std::optional<DType> mask_type = {};
    AttentionStrides mask = {};
    float scale = 1;
    float softcap = 0;    // scores become softcap * tanh(score / softcap) before a mask is added
    bool causal = false;  // query i sees the keys up to i + past
    std::int64_t past = 0;
    // Of these the last ones alone, where it is not 0: of causal attention.
    std::int64_t window = 0;
    // Of each sequence the first keys alone count, as many as a call says; `past` is then what is
    // there of them before the queries, which are the last ones.
    bool is_filled = false;
    // Of k and v, where it is another one: float32 queries may meet bfloat16 keys.
    std::optional<DType> stored = {};

    DType stored_type() const { return stored.value_or(dtype); }

    double flops() const;
    double bytes() const;  // of all arrays but the mask

    friend bool operator==(const AttentionSpec&, const AttentionSpec&) = default;
};

// Throws std::invalid_argument that says what is wrong.
AttentionSpec checked(AttentionSpec spec);

// The same. Where a head has one query, the heads that share keys become the queries of one head.
AttentionSpec validated(AttentionSpec spec);

}  // namespace dlprim
