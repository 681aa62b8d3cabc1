// What one thread does of attention to stored keys at a time: some rows of queries of heads that
// share keys, and one chunk of these; and what is made of all chunks of these rows in the end.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "primitives/attention/attention.h"
#include "primitives/attention/stored_attention_plan.h"
#include "primitives/tensor/workspace.h"

namespace dlprim {

// What a chunk leaves for the end, of a row each: its highest score, the sum of powers, values.
struct StoredPartial {
    StoredPartial(const StoredAttentionPlan& plan, char* base) {
        ScratchCutter cutter(base);
        highest = cutter.take_floats(plan.rows().block);
        sums = cutter.take_floats(plan.rows().block);
        results = cutter.take_floats(plan.rows().block * plan.result_pitch());
        bytes = cutter.bytes();
    }

    float* highest;
    float* sums;
    float* results;
    std::int64_t bytes;
};

struct StoredScratch {
    StoredScratch(const StoredAttentionPlan& plan, char* base) {
        ScratchCutter cutter(base);
        const std::int64_t rows = plan.rows().block;
        queries = cutter.take(rows * plan.query_bytes());
        scores = cutter.take_floats(rows * plan.score_pitch());
        program = cutter.take_floats(plan.program_floats());
        if (plan.spec().causal)
            hidden = cutter.take_floats(plan.most_chunk() + plan.spec().queries);
        bytes = cutter.bytes();
    }

    char* queries;
    float* scores;
    float* program;
    float* hidden = nullptr;
    std::int64_t bytes;
};

// Some rows of a group of heads that share keys.
struct RowsOfGroup {
    std::int64_t sample;
    std::int64_t kv_head;
    Range rows;
};

// Of these rows, such as lie at one distance: the queries of one head, or one query of each.
struct StoredSegment {
    std::int64_t first;  // in rows of the task
    std::int64_t count;
    std::int64_t head;
    std::int64_t query;
};

class StoredAttentionTask {
public:
    static constexpr float kLowestScore = -std::numeric_limits<float>::infinity();

    StoredAttentionTask(const StoredAttentionPlan& plan, const AttentionArrays& arrays,
                        const RowsOfGroup& its)
        : plan_(plan), spec_(plan.spec()), arrays_(arrays), its_(its) {}

    void take_queries(char* to) const {
        for_segments([&](const StoredSegment& it) {
            for (std::int64_t i = 0; i < it.count; ++i) {
                plan_.take_query(
                    at(arrays_.q, first_of(spec_.q, it) + i * step_of(spec_.q), spec_.dtype),
                    to + (it.first + i) * plan_.query_bytes());
            }
        });
    }

    // Of all `keys` those in `chunk`, to queries that are taken.
    void attend(const Range& chunk, std::int64_t keys, const StoredScratch& scratch,
                const StoredPartial& to) const {
        for_rows_together([&](const Range& rows) {
            plan_.sums(rows.size())(rows_of(arrays_.k, spec_.k, chunk, rows, scratch,
                                            scratch.queries + rows.begin * plan_.query_bytes()));
        });
        const bool hides = hide(chunk, keys, scratch.hidden);
        for_segments([&](const StoredSegment& it) { make_powers(it, chunk, hides, scratch, to); });
        for_rows_together([&](const Range& rows) {
            plan_.values(rows.size())(rows_of(arrays_.v, spec_.v, chunk, rows, scratch,
                                              to.results + rows.begin * plan_.result_pitch()));
        });
    }

    // What the chunks have left, in their order, as results.
    void finish(const std::vector<StoredPartial>& parts) const {
        if (parts.size() > 1) {
            for (std::int64_t row = 0; row < its_.rows.size(); ++row) add_up(parts, row);
        }
        for_segments([&](const StoredSegment& it) { divide(it, parts.front()); });
    }

private:
    template <class Body>
    void for_segments(const Body& body) const {
        const std::int64_t first_head = its_.kv_head * (spec_.heads / spec_.kv_heads);
        for (std::int64_t row = its_.rows.begin; row < its_.rows.end;) {
            const std::int64_t query = row % spec_.queries;
            const std::int64_t left = its_.rows.end - row;
            const std::int64_t count =
                spec_.queries == 1 ? left : std::min(left, spec_.queries - query);
            body(StoredSegment{row - its_.rows.begin, count, first_head + row / spec_.queries,
                               query});
            row += count;
        }
    }

    template <class Body>
    void for_rows_together(const Body& body) const {
        const Blocks blocks{its_.rows.size(), plan_.together()};
        for (std::int64_t i = 0; i < blocks.count(); ++i) body(blocks.at(i));
    }

    static char* at(const void* array, std::int64_t element, DType dtype) {
        return static_cast<char*>(const_cast<void*>(array)) + element * size_of(dtype);
    }
    StreamArgs rows_of(const void* array, const AttentionStrides& it, const Range& keys,
                       const Range& rows, const StoredScratch& scratch, void* vectors) const {
        const std::int64_t first =
            its_.sample * it.batch + its_.kv_head * it.head + keys.begin * it.row;
        return {.matrix = at(array, first, spec_.stored_type()),
                .step = it.row * size_of(spec_.stored_type()),
                .rows = keys.size(),
                .numbers = scratch.scores + rows.begin * plan_.score_pitch(),
                .vectors = vectors};
    }
    std::int64_t first_of(const AttentionStrides& strides, const StoredSegment& it) const {
        return its_.sample * strides.batch + it.head * strides.head + it.query * strides.row;
    }
    std::int64_t step_of(const AttentionStrides& strides) const {
        return spec_.queries == 1 ? strides.head : strides.row;
    }

    // Whether any query does not see a key of the chunk. Then `hidden` has what is added to the
    // scores of query i and key j of the chunk, at [j - i] behind one place for every query.
    bool hide(const Range& chunk, std::int64_t keys, float* hidden) const {
        if (!spec_.causal) return false;
        const std::int64_t queries = spec_.queries;
        const std::int64_t later = plan_.past(keys) + 1 - chunk.begin;  // from here on
        const std::int64_t earlier =                                    // up to here
            spec_.window == 0 ? -queries : later - spec_.window;
        if (later >= chunk.size() && earlier <= -queries + 1) return false;
        for (std::int64_t i = 1 - queries; i < chunk.size(); ++i) {
            hidden[i + queries] = i >= later || i < earlier ? kLowestScore : 0;
        }
        return true;
    }

    void make_powers(const StoredSegment& it, const Range& chunk, bool hides,
                     const StoredScratch& scratch, const StoredPartial& to) const {
        float* const scores = scratch.scores + it.first * plan_.score_pitch();
        const RowArgs::Operand of_scores(scores, plan_.score_pitch() * kFloat);
        const RowArgs::Operand highest(to.highest + it.first, kFloat);
        RowArgs args;
        args.rows = it.count;
        args.columns = chunk.size();
        args.scratch = scratch.program;
        auto* next = args.operands.data();
        *next++ = of_scores;
        *next++ = {const_cast<float*>(&plan_.factor()), 0};
        if (spec_.mask_type) {
            *next++ = {at(arrays_.mask, first_of(spec_.mask, it) + chunk.begin, *spec_.mask_type),
                       step_of(spec_.mask) * size_of(*spec_.mask_type)};
        }
        if (hides) {
            const bool is_one = spec_.queries == 1;
            *next++ = {scratch.hidden + spec_.queries - it.query, is_one ? 0 : -kFloat};
        }
        const StoredAttentionPlan::Programs& programs = plan_.programs(hides);
        *next = highest;
        (*programs.highest)(args);
        *next++ = highest;
        *next++ = of_scores;
        *next++ = {to.sums + it.first, kFloat};
        (*programs.powers)(args);
    }

    void add_up(const std::vector<StoredPartial>& parts, std::int64_t row) const {
        float most = kLowestScore;
        for (const StoredPartial& it : parts) most = std::max(most, it.highest[row]);
        const float base = most == kLowestScore ? 0 : most;
        const std::int64_t pitch = plan_.result_pitch();
        float* const results = parts.front().results + row * pitch;
        float sum = 0;
        for (const StoredPartial& it : parts) {
            const float* const its = it.results + row * pitch;
            const bool is_none = it.highest[row] == kLowestScore && it.sums[row] == 0;
            const float weight =
                is_none ? 0 : std::exp2((it.highest[row] - base) * plan_.exponent_of_score());
            sum += weight * it.sums[row];
            for (std::int64_t c = 0; c < spec_.value_size; ++c) {
                const float value = is_none ? 0 : weight * its[c];
                results[c] = its == results ? value : results[c] + value;
            }
        }
        parts.front().sums[row] = sum;
    }

    void divide(const StoredSegment& it, const StoredPartial& from) const {
        RowArgs args;
        args.rows = it.count;
        args.columns = spec_.value_size;
        args.operands[0] = {from.results + it.first * plan_.result_pitch(),
                            plan_.result_pitch() * kFloat};
        args.operands[1] = {from.sums + it.first, kFloat};
        args.operands[2] = {at(arrays_.out, first_of(spec_.out, it), spec_.dtype),
                            step_of(spec_.out) * size_of(spec_.dtype)};
        plan_.dividing()(args);
    }

    const StoredAttentionPlan& plan_;
    const AttentionSpec& spec_;
    const AttentionArrays& arrays_;
    RowsOfGroup its_;
};

}  // namespace dlprim
