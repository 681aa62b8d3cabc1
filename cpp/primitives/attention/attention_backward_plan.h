// What follows from an AttentionBackwardSpec alone: blocks of queries and of keys, the kernels for
// all pairs of them, the row programs, and how far rows of scratch are apart.
//
// Keys are outside, queries inside: a block of keys and values is packed once and meets all queries
// of a task, which add to its gradients. Blocks of queries fall into chunks, each with sums of its
// own that are added in the order of the chunks; neither depends on the number of threads, which
// share chunks where there are fewer heads than they need.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "brgemm/brgemm.h"
#include "primitives/attention/attention_backward.h"
#include "primitives/attention/attention_programs.h"
#include "primitives/tensor/partition.h"

namespace dlprim {

class AttentionBackwardPlan {
public:
    // For a block of queries and so many keys.
    struct Kernels {
        std::shared_ptr<const Brgemm> scores;
        std::shared_ptr<const Brgemm> diff_weights;
        // The first ones write, the others add: to what other queries have, or other keys.
        std::shared_ptr<const Brgemm> first_diff_values;
        std::shared_ptr<const Brgemm> diff_values;
        std::shared_ptr<const Brgemm> first_diff_keys;
        std::shared_ptr<const Brgemm> diff_keys;
        std::shared_ptr<const Brgemm> first_diff_queries;
        std::shared_ptr<const Brgemm> diff_queries;
    };

    // From row to row in scratch: words of what is packed, else elements.
    struct Rows {
        std::int64_t across = 0;   // keys and values, transposed
        std::int64_t heads = 0;    // keys and queries, along
        std::int64_t values = 0;   // gradients by results, along
        std::int64_t scores = 0;   // and gradients by weights
        std::int64_t weights = 0;  // and gradients by scores
        std::int64_t results = 0;  // gradients by queries that wait for further keys
        std::int64_t sums = 0;     // gradients by keys, and behind them those by values
    };

    // `spec` is checked, its extents are no zeros.
    explicit AttentionBackwardPlan(const AttentionBackwardSpec& spec);

    const AttentionBackwardSpec& spec() const { return spec_; }
    const Blocks& queries() const { return queries_; }
    const Blocks& keys() const { return keys_; }
    const Rows& rows() const { return rows_; }
    // Whether gradients by queries, and sums of their rows, wait for further keys.
    bool waits() const { return keys_.count() > 1; }
    // Whether gradients by keys and values are summed where they are wanted.
    bool sums_in_place() const { return chunks_ == 1 && is_single(); }
    // Elsewhere both are in a row of sums, those by values behind.
    std::int64_t value_sums() const { return padded(spec_.forward.head_size, DType::f32); }
    std::int64_t row_of_key_sums() const { return sums_in_place() ? spec_.diff_k.row : rows_.sums; }
    std::int64_t row_of_value_sums() const {
        return sums_in_place() ? spec_.diff_v.row : rows_.sums;
    }

    // Heads of keys of every sequence, each with blocks of queries in chunks.
    std::int64_t groups() const { return spec_.forward.batch * spec_.forward.kv_heads; }
    std::int64_t blocks_of_group() const {
        return spec_.forward.heads / spec_.forward.kv_heads * queries_.count();
    }
    std::int64_t chunks() const { return chunks_; }
    // Of chunks, for so many threads: tasks.
    std::int64_t parts_of_group(int threads) const;

    // Behind the last key that any of the queries sees.
    std::int64_t end_of_keys(const Range& queries) const;
    const LaterKeys& later() const { return later_; }

    // Whether products of scores fetch keys of the next group, whose rows lie as queries do, and
    // those of gradients by weights values, whose rows lie as gradients by results: of short
    // sequences, where they are much of what is to be done.
    bool fetches_keys() const {
        const AttentionSpec& it = spec_.forward;
        return it.keys <= kFewKeys && it.k.row == it.q.row;
    }
    bool fetches_values() const {
        const AttentionSpec& it = spec_.forward;
        return it.keys <= kFewKeys && it.v.row == it.out.row;
    }
    // Whether rows of queries, or of gradients by results, are packed: as the first operand of
    // products of scores, and as the second of those that are summed over queries. Rows that lie
    // far apart share sets of the first cache; where the next ones are fetched beside them they are
    // read as they lie. The second operand of bfloat16 has another form.
    bool packs_first(bool fetches) const { return is_single() && !fetches; }
    bool packs_second(bool fetches) const { return !is_single() || !fetches; }

    const Kernels& kernels(std::int64_t queries, std::int64_t keys) const {
        return kernels_.at({queries, keys});
    }
    const RowKernel& highest(bool is_first, bool hides) const {
        return *programs_.at(is_first ? 1 : 0).at(hides ? 1 : 0).highest;
    }
    const RowKernel& sums(bool is_first, bool hides) const {
        return *programs_.at(is_first ? 1 : 0).at(hides ? 1 : 0).sums;
    }
    const RowKernel& differentiating(bool hides) const {
        return *differentiating_.at(hides ? 1 : 0);
    }
    // Sums of two chunks, as one more of them or as a result.
    const RowKernel& adding() const { return *adding_; }
    const RowKernel& adding_last() const { return *adding_last_; }
    const RowKernel& storing() const { return *storing_; }
    const float& factor() const { return factor_; }  // score_factor()
    std::int64_t scratch_floats() const;             // of the row programs

private:
    static constexpr std::int64_t kFewKeys = 256;

    struct Programs {
        std::shared_ptr<const RowKernel> highest;
        std::shared_ptr<const RowKernel> sums;
    };

    bool is_single() const { return spec_.forward.dtype == DType::f32; }
    Kernels made_for(std::int64_t queries, std::int64_t keys) const;
    void make_sums(Kernels& made, std::int64_t queries, std::int64_t keys) const;
    void make_kernels();
    void make_programs();

    AttentionBackwardSpec spec_;
    Blocks queries_;
    Blocks keys_;
    std::int64_t chunks_ = 1;
    Rows rows_;
    std::map<std::pair<std::int64_t, std::int64_t>, Kernels> kernels_;
    std::array<std::array<Programs, 2>, 2> programs_;
    std::array<std::shared_ptr<const RowKernel>, 2> differentiating_;
    std::shared_ptr<const RowKernel> adding_;
    std::shared_ptr<const RowKernel> adding_last_;
    std::shared_ptr<const RowKernel> storing_;
    float factor_ = 1;
    LaterKeys later_;
};

}  // namespace dlprim
