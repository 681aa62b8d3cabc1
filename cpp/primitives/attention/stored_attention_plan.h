// What follows from a spec alone for attention to stored keys: how long chunks of keys are, which
// rows share a task, the kernels, and the row programs between them. A row is a query of one of the
// heads that share keys: row r of a group is query r % queries of its head r / queries.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "jit/isa.h"
#include "primitives/attention/attention_programs.h"
#include "primitives/attention/attention_spec.h"
#include "primitives/tensor/partition.h"
#include "streams/stream_kernel.h"

namespace dlprim {

class StoredAttentionPlan {
public:
    // `spec` is checked, its extents are no zeros. Throws std::invalid_argument where heads have
    // more than kMostStreamColumns elements.
    StoredAttentionPlan(const AttentionSpec& spec, Isa isa);

    const AttentionSpec& spec() const { return spec_; }
    std::int64_t groups() const { return spec_.batch * spec_.kv_heads; }
    // Of a group, in those of one task.
    const Blocks& rows() const { return rows_; }
    // Rows that meet a key at once.
    std::int64_t together() const { return together_; }

    // Keys before the first query, where there are so many in all; below 0 where there are fewer
    // keys than queries.
    std::int64_t past(std::int64_t keys) const {
        return spec_.is_filled ? keys - spec_.queries : spec_.past;
    }
    // Keys that any query sees, and those in chunks.
    Range seen(std::int64_t keys) const;
    Blocks chunks(const Range& seen) const;
    std::int64_t most_chunk() const { return most_chunk_; }

    // Of queries in scratch, as they are multiplied: bytes from row to row.
    std::int64_t query_bytes() const {
        return stream_pitch(spec_.head_size) * size_of(sums_.vectors);
    }
    void take_query(const void* from, void* to) const {
        take_vector(sums_, isa_, spec_.dtype, from, to);
    }
    std::int64_t score_pitch() const { return score_pitch_; }
    std::int64_t result_pitch() const { return stream_pitch(spec_.value_size); }

    // For so many rows together.
    const StreamKernel& sums(std::int64_t rows) const { return *kernels_of(rows).sums; }
    const StreamKernel& values(std::int64_t rows) const { return *kernels_of(rows).values; }

    struct Programs {
        std::shared_ptr<const RowKernel> highest;
        std::shared_ptr<const RowKernel> powers;
    };
    const Programs& programs(bool hides) const { return programs_.at(hides ? 1 : 0); }
    const RowKernel& dividing() const { return *dividing_; }
    const float& factor() const { return factor_; }  // score_factor()
    // What differences of scores are multiplied by to be exponents of two.
    float exponent_of_score() const { return exponent_of_score_; }
    std::int64_t program_floats() const {
        return programs(false).powers->scratch_floats(most_chunk_);
    }

private:
    struct Kernels {
        std::shared_ptr<const StreamKernel> sums;
        std::shared_ptr<const StreamKernel> values;
    };
    static constexpr std::size_t kMostTogether = 8;

    const Kernels& kernels_of(std::int64_t rows) const {
        return kernels_.at(static_cast<std::size_t>(rows));
    }
    void make_kernels();
    void make_programs();

    AttentionSpec spec_;
    Isa isa_;
    Blocks rows_;
    std::int64_t together_;
    std::int64_t most_chunk_;
    std::int64_t score_pitch_;
    StreamSpec sums_;  // of one row
    std::array<Kernels, kMostTogether + 1> kernels_;
    std::array<Programs, 2> programs_;
    std::shared_ptr<const RowKernel> dividing_;
    float factor_ = 1;
    float exponent_of_score_ = 1;
};

}  // namespace dlprim
