#include "primitives/attention/stored_attention.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <new>
#include <vector>

#include "jit/element_reference.h"
#include "primitives/attention/stored_attention_plan.h"
#include "primitives/tensor/parallel.h"

namespace dlprim {
namespace {

constexpr float kNoScore = -std::numeric_limits<float>::infinity();
// So many rows of one head are fewer than the products of whole blocks are quicker for.
constexpr std::int64_t kFewStoredQueries = 8;

// What a chunk leaves for the end, of a row each: its highest score, the sum of powers, values.
struct Partial {
    Partial(const StoredAttentionPlan& plan, char* base) {
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
        queries = cutter.take(rows * plan.query_pitch() * size_of(plan.query_type()));
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
struct Segment {
    std::int64_t first;  // in rows of the task
    std::int64_t count;
    std::int64_t head;
    std::int64_t query;
};

class StoredAttentionTask {
public:
    StoredAttentionTask(const StoredAttentionPlan& plan, const AttentionArrays& arrays,
                        const RowsOfGroup& its)
        : plan_(plan), spec_(plan.spec()), arrays_(arrays), its_(its) {}

    // Of all `keys` those in `chunk`.
    void attend(const Range& chunk, std::int64_t keys, const StoredScratch& scratch,
                const Partial& to) const {
        for_segments([&](const Segment& it) { take_queries(it, scratch.queries); });
        const StreamArgs of_keys{.matrix = row_of(arrays_.k, spec_.k, chunk.begin),
                                 .step = spec_.k.row * size_of(spec_.stored_type()),
                                 .rows = chunk.size()};
        const StreamArgs of_values{.matrix = row_of(arrays_.v, spec_.v, chunk.begin),
                                   .step = spec_.v.row * size_of(spec_.stored_type()),
                                   .rows = chunk.size()};
        const std::int64_t query = plan_.query_pitch() * size_of(plan_.query_type());
        for_rows_together([&](const Range& rows) {
            StreamArgs args = of_keys;
            args.numbers = scratch.scores + rows.begin * plan_.score_pitch();
            args.vectors = scratch.queries + rows.begin * query;
            plan_.sums(rows.size())(args);
        });
        const bool hides = hide(chunk, keys, scratch.hidden);
        for_segments([&](const Segment& it) { make_powers(it, chunk, hides, scratch, to); });
        for_rows_together([&](const Range& rows) {
            StreamArgs args = of_values;
            args.numbers = scratch.scores + rows.begin * plan_.score_pitch();
            args.vectors = to.results + rows.begin * plan_.result_pitch();
            plan_.values(rows.size())(args);
        });
    }

    // What the chunks have left, in their order, as results.
    void finish(const std::vector<Partial>& parts) const {
        if (parts.size() > 1) {
            for (std::int64_t row = 0; row < its_.rows.size(); ++row) add_up(parts, row);
        }
        for_segments([&](const Segment& it) { divide(it, parts.front()); });
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
            body(Segment{row - its_.rows.begin, count, first_head + row / spec_.queries, query});
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
    char* row_of(const void* array, const AttentionStrides& it, std::int64_t key) const {
        return at(array, its_.sample * it.batch + its_.kv_head * it.head + key * it.row,
                  spec_.stored_type());
    }
    std::int64_t first_of(const AttentionStrides& strides, const Segment& it) const {
        return its_.sample * strides.batch + it.head * strides.head + it.query * strides.row;
    }
    std::int64_t step_of(const AttentionStrides& strides) const {
        return spec_.queries == 1 ? strides.head : strides.row;
    }

    void take_queries(const Segment& it, char* to) const {
        const std::int64_t size = spec_.head_size, pitch = plan_.query_pitch();
        const DType type = plan_.query_type();
        for (std::int64_t i = 0; i < it.count; ++i) {
            const char* const from =
                at(arrays_.q, first_of(spec_.q, it) + i * step_of(spec_.q), spec_.dtype);
            char* const row = to + (it.first + i) * pitch * size_of(type);
            if (type == spec_.dtype) {
                std::memcpy(row, from, static_cast<std::size_t>(size * size_of(type)));
            } else {
                for (std::int64_t c = 0; c < size; ++c) {
                    reinterpret_cast<float*>(row)[c] = element_at(spec_.dtype, from, c);
                }
            }
            std::memset(row + size * size_of(type), 0,
                        static_cast<std::size_t>((pitch - size) * size_of(type)));
        }
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
            hidden[i + queries] = i >= later || i < earlier ? kNoScore : 0;
        }
        return true;
    }

    void make_powers(const Segment& it, const Range& chunk, bool hides,
                     const StoredScratch& scratch, const Partial& to) const {
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

    void add_up(const std::vector<Partial>& parts, std::int64_t row) const {
        float most = kNoScore;
        for (const Partial& it : parts) most = std::max(most, it.highest[row]);
        const float base = most == kNoScore ? 0 : most;
        const std::int64_t pitch = plan_.result_pitch();
        float* const results = parts.front().results + row * pitch;
        float sum = 0;
        for (const Partial& it : parts) {
            const float* const its = it.results + row * pitch;
            const bool is_none = it.highest[row] == kNoScore && it.sums[row] == 0;
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

    void divide(const Segment& it, const Partial& from) const {
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

}  // namespace

bool StoredAttention::serves(const AttentionSpec& spec) {
    if (spec.is_filled || spec.window > 0 || spec.stored_type() != spec.dtype) return true;
    return spec.queries <= kFewStoredQueries &&
           std::max(spec.head_size, spec.value_size) <= kMostStreamColumns;
}

StoredAttention::StoredAttention(const AttentionSpec& spec)
    : plan_(std::make_shared<const StoredAttentionPlan>(spec, usable_isa())) {}

void StoredAttention::forward(const AttentionArrays& arrays, WorkspacePool& pool) const {
    const StoredAttentionPlan& plan = *plan_;
    const AttentionSpec& spec = plan.spec();
    const auto keys_of = [&](std::int64_t sample) {
        return spec.is_filled ? std::clamp<std::int64_t>(arrays.fill[sample], 0, spec.keys)
                              : spec.keys;
    };
    const auto chunks_of = [&](std::int64_t keys) {
        return std::max<std::int64_t>(plan.chunks(plan.seen(keys)).count(), 1);
    };
    std::int64_t most = 1, seen = 0;
    for (std::int64_t sample = 0; sample < spec.batch; ++sample) {
        most = std::max(most, chunks_of(keys_of(sample)));
        seen += plan.seen(keys_of(sample)).size();
    }
    const double share = static_cast<double>(seen) / static_cast<double>(spec.batch * spec.keys);
    const WorkOf work(spec.flops() * share, spec.bytes() * share);
    const std::int64_t blocks = plan.rows().count(), groups = plan.groups() * blocks;
    const std::int64_t part = Partial(plan, nullptr).bytes;
    const std::int64_t counts =
        aligned(groups * static_cast<std::int64_t>(sizeof(std::atomic<int>)));
    const WorkspacePool::Lease lease(pool, counts + groups * most * part);
    auto* const left = reinterpret_cast<std::atomic<int>*>(lease.data());
    for (std::int64_t i = 0; i < groups; ++i) {
        const std::int64_t sample = i / blocks / spec.kv_heads;
        new (left + i) std::atomic<int>(static_cast<int>(chunks_of(keys_of(sample))));
    }
    parallel_for(groups * most, [&](std::int64_t task) {
        const std::int64_t group = task / most, i = task % most, head = group / blocks;
        const std::int64_t sample = head / spec.kv_heads, keys = keys_of(sample);
        const std::int64_t count = chunks_of(keys);
        if (i >= count) return;
        const StoredAttentionTask it(
            plan, arrays, {sample, head % spec.kv_heads, plan.rows().at(group % blocks)});
        const WorkspacePool::Lease scratch(pool, StoredScratch(plan, nullptr).bytes);
        const Range all = plan.seen(keys), chunk = plan.chunks(all).at(i);
        char* const parts = lease.data() + counts + group * most * part;
        it.attend({all.begin + chunk.begin, all.begin + chunk.end}, keys,
                  StoredScratch(plan, scratch.data()), Partial(plan, parts + i * part));
        if (left[group].fetch_sub(1, std::memory_order_acq_rel) > 1) return;
        std::vector<Partial> made;
        for (std::int64_t c = 0; c < count; ++c) made.emplace_back(plan, parts + c * part);
        it.finish(made);
    });
}

}  // namespace dlprim
