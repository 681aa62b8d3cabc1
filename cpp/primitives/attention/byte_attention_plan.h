// What follows from a ByteAttentionSpec alone: blocks of queries, the kernels for each number of
// queries and keys, the row programs, and how far rows of scratch are apart.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "brgemm/brgemm.h"
#include "primitives/attention/attention_programs.h"
#include "primitives/attention/byte_attention.h"
#include "primitives/tensor/partition.h"

namespace dlprim {

class ByteAttentionPlan {
public:
    struct Kernels {
        std::shared_ptr<const Brgemm> scores;
        std::shared_ptr<const Brgemm> results;
    };
    // Elements from row to row in scratch; of packed keys and values words.
    struct Rows {
        std::int64_t keys = 0;
        std::int64_t values = 0;
        std::int64_t scores = 0;
        std::int64_t weights = 0;
    };
    // The end of a product: its sums times a number and, where that becomes a byte, kept between
    // two bounds, rounded, and a zero point added.
    struct End {
        float scale = 1;
        float lowest = 0;
        float highest = 0;
        std::int32_t zero_point = 0;
    };

    explicit ByteAttentionPlan(const ByteAttentionSpec& spec);

    const ByteAttentionSpec& spec() const { return spec_; }
    const Blocks& queries() const { return queries_; }
    const Rows& rows() const { return rows_; }
    DType scores_type() const { return spec_.scores ? spec_.scores->type : DType::f32; }
    DType out_type() const { return spec_.out ? spec_.out->type : DType::f32; }

    // Tasks: heads of keys of every sequence, each with its blocks of queries in parts.
    std::int64_t groups() const { return spec_.shape.batch * spec_.shape.kv_heads; }
    std::int64_t blocks_of_group() const {
        return spec_.shape.heads / spec_.shape.kv_heads * queries_.count();
    }
    std::int64_t parts_of_group(int threads) const;

    // Those that any of the queries sees.
    Range keys_of(const Range& queries) const;
    const LaterKeys& later() const { return later_; }

    const Kernels& kernels(std::int64_t queries, std::int64_t keys) const {
        return kernels_.at({queries, keys});
    }
    const End& scores_end() const { return scores_end_; }
    const End& results_end() const { return results_end_; }
    const RowKernel& highest(bool hides) const { return *highest_.at(hides ? 1 : 0); }
    const RowKernel& weights(bool hides) const { return *weights_.at(hides ? 1 : 0); }
    const RowKernel& to_signed() const { return *to_signed_; }
    const float& factor() const { return factor_; }  // score_factor()
    // What the programs subtract from scores in 8 bits.
    const float& scores_zero() const { return scores_zero_; }
    std::int64_t scratch_floats() const;  // of the row programs

private:
    void make_kernels(std::int64_t queries, std::int64_t keys);
    void make_programs();

    ByteAttentionSpec spec_;
    Blocks queries_;
    Rows rows_;
    std::map<std::pair<std::int64_t, std::int64_t>, Kernels> kernels_;
    std::array<std::shared_ptr<const RowKernel>, 2> highest_;
    std::array<std::shared_ptr<const RowKernel>, 2> weights_;
    std::shared_ptr<const RowKernel> to_signed_;
    End scores_end_;
    End results_end_;
    float factor_ = 1;
    float scores_zero_ = 0;
    LaterKeys later_;
};

}  // namespace dlprim
