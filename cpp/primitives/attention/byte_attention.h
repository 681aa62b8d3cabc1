// Attention of 8-bit arrays: both products multiply integers, what stands between them is a row
// program (attention_programs.h). The weights that the softmax makes are rounded to 8 bits when
// they are divided by their sum, so a query's scores are all there before any of them goes on:
// blocks of queries meet all keys at once, and their scores stay in the second cache.
//
// Rows that see no key have weights of zero. Results are the same bits for any number of threads.
// An object may be used by several threads at once.
#pragma once

#include <memory>
#include <optional>

#include "primitives/attention/attention.h"

namespace dlprim {

// What a byte q stands for: (q - zero_point) * scale.
struct ByteSteps {
    DType type = DType::u8;  // or s8
    float scale = 1;
    std::int32_t zero_point = 0;

    friend bool operator==(const ByteSteps&, const ByteSteps&) = default;
};

struct ByteAttentionSpec {
    AttentionSpec shape = {};  // whose dtype and softcap are not looked at
    ByteSteps q = {};
    ByteSteps k = {};
    ByteSteps v = {};
    std::optional<ByteSteps> scores = {};  // what products are rounded to before they are scaled
    ByteSteps weights = {};                // what the softmax is rounded to
    std::optional<ByteSteps> out = {};     // else results are float32
    // k lies (N, H, D, keys): shape.k.row is from one element of a head to the next, and the keys
    // are neighbours.
    bool keys_are_columns = false;

    friend bool operator==(const ByteAttentionSpec&, const ByteAttentionSpec&) = default;
};

class ByteAttentionPlan;

class ByteAttention {
public:
    // Throws std::invalid_argument that says what is wrong; no extent may be 0.
    explicit ByteAttention(ByteAttentionSpec spec);

    void forward(const AttentionArrays& arrays) const;

private:
    std::shared_ptr<const ByteAttentionPlan> plan_;
    std::shared_ptr<WorkspacePool> workspaces_ = WorkspacePool::shared();
};

}  // namespace dlprim
