// Attention as one operator: scores are made, turned to powers and multiplied with the values block
// by block, and never leave the second cache. Both products are the kernel's, the softmax between
// them is a row program (attention_programs.h), blocks are attention_plan.h's. A few queries go
// another way (stored_attention.h).
//
// Rows all of whose scores are -infinity give zeros. Results are the same bits for any number of
// threads. An object may be used by several threads at once.
#pragma once

#include <cstdint>
#include <memory>

#include "primitives/attention/attention_spec.h"
#include "primitives/tensor/workspace.h"

namespace dlprim {

class AttentionPlan;
class StoredAttention;

// First elements. out overlaps nothing else.
struct AttentionArrays {
    const void* q = nullptr;
    const void* k = nullptr;
    const void* v = nullptr;
    const void* mask = nullptr;
    void* out = nullptr;
    // Of each sequence how many keys count, where the spec says so; what is out of bounds counts as
    // the nearest number that is not.
    const std::int64_t* fill = nullptr;
};

class Attention {
public:
    // Throws as validated() does.
    explicit Attention(const AttentionSpec& spec);

    const AttentionSpec& spec() const { return spec_; }
    void forward(const AttentionArrays& arrays) const;

private:
    AttentionSpec spec_;
    // One of them, none where an extent is 0.
    std::shared_ptr<const AttentionPlan> plan_;
    std::shared_ptr<const StoredAttention> stored_;
    std::shared_ptr<WorkspacePool> workspaces_ = WorkspacePool::shared();
};

}  // namespace dlprim
