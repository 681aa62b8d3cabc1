// Attention of a few queries to keys and values where they are stored, such as in a cache with
// room for more than there are: a row of keys or values is read once, for all queries of all heads
// that share it (streams/stream_kernel.h), and nothing is packed or copied. How many keys count is
// a number of the call, so that one object serves all steps of a sequence.
//
// Keys are cut into chunks of a fixed length. A chunk's highest scores, sums of powers and sums of
// values wait until all chunks of a head are there, and are then added up in the order of chunks,
// whoever computed them: results are the same bits for any number of threads.
#pragma once

#include <memory>

#include "primitives/attention/attention.h"
#include "primitives/attention/attention_spec.h"
#include "primitives/tensor/workspace.h"

namespace dlprim {

class StoredAttentionPlan;

class StoredAttention {
public:
    // Whether this is the way for a spec, which is checked; for some there is no other.
    static bool serves(const AttentionSpec& spec);

    // Throws std::invalid_argument where heads have more than kMostStreamColumns elements.
    explicit StoredAttention(const AttentionSpec& spec);

    void forward(const AttentionArrays& arrays, WorkspacePool& pool) const;

private:
    std::shared_ptr<const StoredAttentionPlan> plan_;
};

}  // namespace dlprim
