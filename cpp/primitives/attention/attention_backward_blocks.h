// What a task of attention's backward pass does with one block of queries and the keys of a block
// that it sees: products, the row programs between them, and where all of that lies.
#pragma once

#include <cstdint>

#include "brgemm/amx/kept_tiles.h"
#include "primitives/attention/attention_backward_plan.h"
#include "primitives/attention/attention_packing.h"

namespace dlprim {

// Pieces of a task's scratch; those of queries have a place for each of the blocks that wait, those
// of sums for each of its chunks.
struct BackwardScratch {
    BackwardScratch(const AttentionBackwardPlan& plan, std::int64_t waiting, std::int64_t chunks,
                    char* base);

    char* keys_across;
    char* values_across;
    char* keys_along;
    char* queries_along;
    char* diff_out_along;
    char* scores;
    char* diff_weights;
    char* weights;      // of float32 where scores are
    char* diff_scores;  // of float32 where diff_weights are
    char* weights_along;
    char* diff_scores_along;
    float* program;
    float* shrinks;
    float* highest;
    float* totals;
    float* weighted;
    float* diff_queries;
    float* sums;  // null where they are elsewhere
    std::int64_t bytes;
};

// A head of keys of a sequence.
class KeyHead {
public:
    KeyHead(const AttentionSpec& spec, std::int64_t group)
        : spec_(spec), batch_(group / spec_.kv_heads), head_(group % spec_.kv_heads) {}

    KeyHead next() const { return {spec_, batch_ * spec_.kv_heads + head_ + 1}; }
    std::int64_t batch() const { return batch_; }
    std::int64_t first_head() const { return head_ * (spec_.heads / spec_.kv_heads); }
    // Rows of a head of queries, and of this head of keys.
    char* row_of(const void* array, const AttentionStrides& it, std::int64_t head,
                 std::int64_t row) const {
        const std::int64_t element = batch_ * it.batch + head * it.head + row * it.row;
        return static_cast<char*>(const_cast<void*>(array)) + element * size_of(spec_.dtype);
    }
    char* key_of(const void* array, const AttentionStrides& it, std::int64_t row) const {
        return row_of(array, it, head_, row);
    }

private:
    const AttentionSpec& spec_;
    std::int64_t batch_;
    std::int64_t head_;
};

// A block of queries, and keys that it sees.
struct BackwardPair {
    std::int64_t head = 0;
    Range queries = {};
    Range keys = {};
    std::int64_t place = 0;  // of its first row among those that wait
    bool is_first = false;   // of those that add to the sums of these keys: it writes them
};

// Where gradients by the keys and values of a block are summed.
struct KeySums {
    float* keys = nullptr;
    float* values = nullptr;
};

class BackwardBlocks {
public:
    // All of them outlive it.
    BackwardBlocks(const AttentionBackwardPlan& plan, const AttentionBackwardArrays& arrays,
                   const KeyHead& head, const BackwardScratch& scratch)
        : plan_(plan),
          spec_(plan.spec().forward),
          arrays_(arrays),
          head_(head),
          scratch_(scratch) {}

    // Keys and values as scores need them, and keys as gradients by queries do.
    void pack_across(const Range& keys) const;
    void pack_along(const Range& keys) const;
    // Adds what the pair has to sums of rows.
    void add_up(const BackwardPair& pair);
    // Adds what the pair has to all gradients; sums of rows are there, or made of these keys alone.
    void differentiate(const BackwardPair& pair, const KeySums& sums);

private:
    void run(const Brgemm& kernel, const void* a, const void* b, void* c);
    void pack_queries(const BackwardPair& it) const;
    void make_scores(const BackwardPair& it);
    void make_sums(const BackwardPair& it) const;
    void make_diff_scores(const BackwardPair& it) const;
    void make_diff_keys(const BackwardPair& it, const KeySums& sums);
    void make_diff_queries(const BackwardPair& it);
    RowArgs::Operand* begin(const BackwardPair& it, RowArgs& args) const;
    HeadRows keys_at(const void* array, const AttentionStrides& it, const Range& keys,
                     std::int64_t size) const;
    bool hides(const BackwardPair& it) const { return plan_.later().hides(it.queries, it.keys); }
    const char* queries_of(const BackwardPair& it) const {
        return head_.row_of(arrays_.q, spec_.q, it.head, it.queries.begin);
    }
    const char* diff_out_of(const BackwardPair& it) const {
        return head_.row_of(arrays_.diff_out, spec_.out, it.head, it.queries.begin);
    }
    const AttentionBackwardPlan::Kernels& kernels(const BackwardPair& it) const {
        return plan_.kernels(it.queries.size(), it.keys.size());
    }

    const AttentionBackwardPlan& plan_;
    const AttentionSpec& spec_;
    const AttentionBackwardArrays& arrays_;
    const KeyHead& head_;
    const BackwardScratch& scratch_;
    KeptTiles tiles_;
};

}  // namespace dlprim
