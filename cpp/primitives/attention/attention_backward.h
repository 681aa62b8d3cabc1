// Gradients of attention by q, k and v. Scores and the gradients by them are made again block by
// block and never leave the caches (FlashAttention's backward pass, arXiv 2205.14135). With
// weights w = softmax(scores), out = w v and the gradient by out:
//
//     diff_v = w^T diff_out       diff_w = diff_out v^T
//     diff_scores = w (diff_w - sum(w diff_w))
//     diff_q = scale diff_scores k    diff_k = scale diff_scores^T q
//
// Neither out nor anything else is kept from the forward pass: where all keys are one block, sums
// of a row are there anyway, else a first turn over the blocks finds them.
//
// Queries that see no key have gradients of zero and give none. Results are the same bits for any
// number of threads. An object may be used by several threads at once.
#pragma once

#include <memory>

#include "primitives/attention/attention_spec.h"
#include "primitives/tensor/workspace.h"

namespace dlprim {

class AttentionBackwardPlan;

struct AttentionBackwardSpec {
    AttentionSpec forward = {};  // whose `out` says how the gradient by it lies
    AttentionStrides diff_q = {};
    AttentionStrides diff_k = {};
    AttentionStrides diff_v = {};

    double flops() const { return 2.5 * forward.flops(); }
    double bytes() const { return 2 * forward.bytes(); }

    friend bool operator==(const AttentionBackwardSpec&, const AttentionBackwardSpec&) = default;
};

// First elements. Results overlap nothing else.
struct AttentionBackwardArrays {
    const void* q = nullptr;
    const void* k = nullptr;
    const void* v = nullptr;
    const void* mask = nullptr;
    const void* diff_out = nullptr;
    void* diff_q = nullptr;
    void* diff_k = nullptr;
    void* diff_v = nullptr;
};

class AttentionBackward {
public:
    // Throws as checked() does.
    explicit AttentionBackward(const AttentionBackwardSpec& spec);

    const AttentionBackwardSpec& spec() const { return spec_; }
    void run(const AttentionBackwardArrays& arrays) const;

private:
    AttentionBackwardSpec spec_;
    std::shared_ptr<const AttentionBackwardPlan> plan_;  // none where an extent is 0
    std::shared_ptr<WorkspacePool> workspaces_ = WorkspacePool::shared();
};

}  // namespace dlprim
