// What follows from a spec alone: blocks of queries and of keys, the kernels for all pairs of them,
// the row programs, and where the pieces of scratch are.
//
// Keys are outside, queries inside: a block of keys and values is packed once, stays in the second
// cache, and meets all queries of a task, whose results so far wait in scratch. Blocks do not
// depend on the number of threads, and each query's results come from the blocks of keys in their
// order.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "brgemm/brgemm.h"
#include "jit/machine.h"
#include "primitives/attention/attention_programs.h"
#include "primitives/attention/attention_spec.h"
#include "primitives/tensor/partition.h"

namespace dlprim {

// Parts of each group of queries that share keys, which pack those again: as few as make tasks that
// threads share evenly.
std::int64_t even_parts(std::int64_t groups, int threads);

class AttentionPlan {
public:
    // For a block of queries and so many keys. `first_values` writes results, `values` adds to
    // them.
    struct Kernels {
        std::array<std::shared_ptr<const Brgemm>, 2> scores;  // of halves()
        std::shared_ptr<const Brgemm> first_values;
        std::shared_ptr<const Brgemm> values;
    };

    // Elements from row to row in scratch; of packed keys words, a row is a word of the head.
    struct Rows {
        std::int64_t keys = 0;
        std::int64_t values = 0;
        std::int64_t scores = 0;
        std::int64_t powers = 0;
        std::int64_t results = 0;
    };

    // `spec` is validated, its extents are no zeros.
    AttentionPlan(const AttentionSpec& spec, const Machine& machine);

    const AttentionSpec& spec() const { return spec_; }
    const Blocks& queries() const { return queries_; }
    const Blocks& keys() const { return keys_; }
    const Rows& rows() const { return rows_; }

    // Tasks: heads of keys of every sequence, each with its blocks of queries in parts.
    std::int64_t groups() const { return spec_.batch * spec_.kv_heads; }
    std::int64_t blocks_of_group() const { return spec_.heads / spec_.kv_heads * queries_.count(); }
    std::int64_t parts_of_group(int threads) const;

    // Behind the last key that any of the queries sees.
    std::int64_t end_of_keys(const Range& queries) const;
    const LaterKeys& later() const { return later_; }

    // Whether results are summed where they are wanted: nothing waits for further keys.
    bool sums_in_place() const { return keys_.count() == 1 && spec_.dtype == DType::f32; }
    // Whether the kernel fetches keys and values of the next group, whose rows lie as queries do:
    // of short sequences, where they are much of what is to be done.
    bool fetches_next() const {
        return spec_.keys <= kFewKeys && spec_.k.row == spec_.q.row && spec_.v.row == spec_.q.row;
    }
    // So many keys, or halves of them, of which the second may be missing: then keys are fetched
    // beside the products of the first, values beside those of the second.
    Blocks halves(std::int64_t keys) const {
        return {keys, fetches_next() ? rounded_up((keys + 1) / 2, 2 * kRowUnit) : keys};
    }

    // Packed keys are multiplied as whole vectors, so that sequences of many lengths share kernels
    // and no row of scores ends within a vector; nobody reads what is behind the last one. Values
    // are multiplied in fours, the missing ones being zeros, unless other queries see them.
    std::int64_t whole_keys(std::int64_t keys) const {
        return spec_.dtype == DType::f32 ? rounded_up(keys, lanes_) : keys;
    }
    std::int64_t whole_values(std::int64_t keys) const {
        return spec_.causal ? keys : std::min(whole_keys(keys), rounded_up(keys, kQuad));
    }

    const Kernels& kernels(std::int64_t queries, std::int64_t keys) const {
        return kernels_.at({queries, keys});
    }
    struct Programs {
        std::shared_ptr<const RowKernel> highest;
        std::shared_ptr<const RowKernel> powers;
    };
    const Programs& programs(bool is_first, bool hides_later) const {
        return programs_.at(is_first ? 1 : 0).at(hides_later ? 1 : 0);
    }
    const float& factor() const { return factor_; }  // score_factor()
    const RowKernel& shrinking() const { return *shrinking_; }
    const RowKernel& dividing() const { return *dividing_; }
    std::int64_t scratch_floats() const;  // of the row programs

private:
    static constexpr std::int64_t kFewKeys = 256;
    static constexpr std::int64_t kRowUnit = 16;  // tiles of AMX have as many rows and columns

    void make_kernels();
    void make_programs();

    AttentionSpec spec_;
    double l2_;
    std::int64_t lanes_;  // of a vector
    Blocks queries_;
    Blocks keys_;
    Rows rows_;
    std::map<std::pair<std::int64_t, std::int64_t>, Kernels> kernels_;
    std::array<std::array<Programs, 2>, 2> programs_;
    float factor_ = 1;
    std::shared_ptr<const RowKernel> shrinking_;
    std::shared_ptr<const RowKernel> dividing_;
    LaterKeys later_;
};

}  // namespace dlprim
