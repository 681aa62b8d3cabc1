// Attention as one operator: scores are made, turned to powers and multiplied with the values block
// by block, and never leave the second cache. Both products are the kernel's, the softmax between
// them is a row program (attention_programs.h), blocks are attention_plan.h's.
//
// Rows all of whose scores are -infinity give zeros. Results are the same bits for any number of
// threads. An object may be used by several threads at once.
#pragma once

#include <memory>

#include "primitives/attention/attention_spec.h"
#include "primitives/tensor/workspace.h"

namespace dlprim {

class AttentionPlan;

// First elements. out overlaps nothing else.
struct AttentionArrays {
    const void* q = nullptr;
    const void* k = nullptr;
    const void* v = nullptr;
    const void* mask = nullptr;
    void* out = nullptr;
};

class Attention {
public:
    // Throws as validated() does.
    explicit Attention(const AttentionSpec& spec);

    const AttentionSpec& spec() const { return spec_; }
    void forward(const AttentionArrays& arrays) const;

private:
    AttentionSpec spec_;
    std::shared_ptr<const AttentionPlan> plan_;  // none where an extent is 0
    std::shared_ptr<WorkspacePool> workspaces_ = WorkspacePool::shared();
};

}  // namespace dlprim
