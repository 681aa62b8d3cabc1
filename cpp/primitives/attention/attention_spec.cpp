#include "primitives/attention/attention_spec.h"

#include <algorithm>
#include <stdexcept>

namespace dlprim {
namespace {

void require(bool holds, const char* sentence) {
    if (!holds) throw std::invalid_argument(sentence);
}

// Heads and queries exchanged.
AttentionStrides turned(const AttentionStrides& it, std::int64_t together) {
    return {.batch = it.batch, .head = it.head * together, .row = it.head};
}

AttentionSpec with_heads_as_queries(AttentionSpec spec) {
    const std::int64_t together = spec.heads / spec.kv_heads;
    spec.q = turned(spec.q, together);
    spec.out = turned(spec.out, together);
    spec.mask = turned(spec.mask, together);
    spec.queries = together;
    spec.heads = spec.kv_heads;
    return spec;
}

}  // namespace

double AttentionSpec::flops() const {
    return 2.0 * static_cast<double>(batch * heads * queries) *
           static_cast<double>(keys * (head_size + value_size)) * (causal ? 0.5 : 1);
}

double AttentionSpec::bytes() const {
    const std::int64_t of_queries = heads * queries, of_keys = kv_heads * keys;
    const std::int64_t bytes = of_queries * size_of(dtype) + of_keys * size_of(stored_type());
    return static_cast<double>(batch * (head_size + value_size) * bytes);
}

AttentionSpec checked(AttentionSpec spec) {
    require(spec.dtype == DType::f32 || spec.dtype == DType::bf16,
            "attention is of float32 or bfloat16");
    require(spec.batch >= 0 && spec.heads >= 0 && spec.queries >= 0 && spec.keys >= 0 &&
                spec.value_size >= 0 && spec.past >= 0,
            "an extent of attention is below 0");
    require(spec.stored_type() == spec.dtype ||
                (spec.dtype == DType::f32 && spec.stored_type() == DType::bf16),
            "keys are neither of the type of queries nor bfloat16 for float32 ones");
    require(spec.window >= 0 && (spec.window == 0 || spec.causal),
            "a window of attention is below 0, or its queries see keys that come later");
    require(spec.kv_heads >= 1 && spec.heads % spec.kv_heads == 0,
            "heads are not a multiple of those of keys and values");
    require(
        spec.head_size >= 1 && std::max(spec.head_size, spec.value_size) <= kMostAttentionElements,
        "the size of a head is not between 1 and 2^24");
    if (spec.queries <= 1) {
        spec.q.row = spec.head_size;
        spec.out.row = spec.value_size;
    }
    require(spec.q.row >= spec.head_size && spec.q.row <= kMostAttentionElements,
            "rows of q are nearer than the size of a head or farther than 2^24 elements");
    require(spec.out.row >= spec.value_size && spec.out.row <= kMostAttentionElements,
            "rows of out are nearer than the size of a value or farther than 2^24 elements");
    return spec;
}

AttentionSpec validated(AttentionSpec spec) {
    const bool turns = spec.queries == 1 && spec.kv_heads >= 1 && spec.heads > spec.kv_heads &&
                       spec.heads % spec.kv_heads == 0 && spec.q.head >= spec.head_size &&
                       !spec.causal && !spec.is_filled;
    return checked(turns ? with_heads_as_queries(spec) : spec);
}

}  // namespace dlprim
