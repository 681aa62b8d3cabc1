#include "primitives/attention/attention_backward.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "brgemm/amx/kept_tiles.h"
#include "primitives/attention/attention_backward_plan.h"
#include "primitives/attention/attention_packing.h"
#include "primitives/tensor/parallel.h"

namespace dlprim {
namespace {

// Pieces of a task's scratch; those of queries have a place for each of the blocks that wait, those
// of sums for each of its chunks.
struct BackwardScratch {
    BackwardScratch(const AttentionBackwardPlan& plan, std::int64_t waiting, std::int64_t chunks,
                    char* base) {
        ScratchCutter cutter(base);
        const AttentionSpec& spec = plan.spec().forward;
        const AttentionBackwardPlan::Rows& rows = plan.rows();
        const std::int64_t queries = plan.queries().block, keys = plan.keys().block;
        const auto words = [together = elements_per_word(spec.dtype)](std::int64_t elements) {
            return (elements + together - 1) / together;
        };
        keys_across = cutter.take(words(spec.head_size) * rows.across * kWord);
        values_across = cutter.take(words(spec.value_size) * rows.across * kWord);
        keys_along = cutter.take(words(keys) * rows.heads * kWord);
        queries_along = cutter.take(words(queries) * rows.heads * kWord);
        diff_out_along = cutter.take(words(queries) * rows.values * kWord);
        scores = cutter.take(queries * rows.scores * kFloat);
        diff_weights = cutter.take(queries * rows.scores * kFloat);
        weights = weights_along = scores;
        diff_scores = diff_scores_along = diff_weights;
        if (spec.dtype != DType::f32) {
            weights = cutter.take(queries * rows.weights * size_of(spec.dtype));
            diff_scores = cutter.take(queries * rows.weights * size_of(spec.dtype));
            weights_along = cutter.take(words(queries) * rows.across * kWord);
            diff_scores_along = cutter.take(words(queries) * rows.across * kWord);
        }
        program = cutter.take_floats(plan.scratch_floats());
        shrinks = cutter.take_floats(queries);
        highest = cutter.take_floats(waiting * queries);
        totals = cutter.take_floats(waiting * queries);
        weighted = cutter.take_floats(waiting * queries);
        diff_queries =
            plan.waits() ? cutter.take_floats(waiting * queries * rows.results) : nullptr;
        sums = cutter.take_floats(chunks * keys * rows.sums);
        bytes = cutter.bytes();
    }

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
    float* sums;
    std::int64_t bytes;
};

// A head of keys of a sequence.
class KeyHead {
public:
    KeyHead(const AttentionBackwardPlan& plan, std::int64_t group)
        : plan_(plan),
          spec_(plan.spec().forward),
          batch_(group / spec_.kv_heads),
          head_(group % spec_.kv_heads) {}

    std::int64_t batch() const { return batch_; }
    std::int64_t first_head() const { return head_ * (spec_.heads / spec_.kv_heads); }
    // A row of a head of queries.
    char* row_of(const void* array, const AttentionStrides& it, std::int64_t head,
                 std::int64_t row) const {
        const std::int64_t element = batch_ * it.batch + head * it.head + row * it.row;
        return static_cast<char*>(const_cast<void*>(array)) + element * size_of(spec_.dtype);
    }
    char* key_of(const void* array, const AttentionStrides& it, std::int64_t row) const {
        return row_of(array, it, head_, row);
    }

    // Adds the sums of all chunks, so many floats from each other, and stores them.
    void finish(const AttentionBackwardArrays& arrays, const Range& keys, float* sums,
                std::int64_t distance) const {
        const std::int64_t row = plan_.rows().sums * kFloat;
        RowArgs args;
        args.rows = keys.size();
        args.columns = plan_.rows().sums;
        args.operands[0] = args.operands[2] = {sums, row};
        for (std::int64_t i = 1; i < plan_.chunks(); ++i) {
            args.operands[1] = {sums + i * distance, row};
            plan_.adding()(args);
        }
        const AttentionBackwardSpec& spec = plan_.spec();
        const std::int64_t size = size_of(spec_.dtype);
        args.columns = spec_.head_size;
        args.operands[1] = {key_of(arrays.diff_k, spec.diff_k, keys.begin), spec.diff_k.row * size};
        plan_.storing()(args);
        args.columns = spec_.value_size;
        args.operands[0] = {sums + plan_.key_sums(), row};
        args.operands[1] = {key_of(arrays.diff_v, spec.diff_v, keys.begin), spec.diff_v.row * size};
        plan_.storing()(args);
    }

private:
    const AttentionBackwardPlan& plan_;
    const AttentionSpec& spec_;
    std::int64_t batch_;
    std::int64_t head_;
};

// Some chunks of queries that share keys and values, on one thread.
class BackwardTask {
public:
    // `shared` is where sums of all keys of all chunks are that other tasks have a part of, or
    // null.
    BackwardTask(const AttentionBackwardPlan& plan, const AttentionBackwardArrays& arrays,
                 const KeyHead& head, const Range& chunks, float* shared)
        : plan_(plan),
          spec_(plan.spec().forward),
          arrays_(arrays),
          head_(head),
          chunks_(chunks),
          shared_(shared) {}

    void run(WorkspacePool& pool) {
        const std::int64_t chunks = shared_ == nullptr ? chunks_.size() : 0;
        const std::int64_t waiting = plan_.waits() ? blocks_of(chunks_).size() : 1;
        const WorkspacePool::Lease lease(pool,
                                         BackwardScratch(plan_, waiting, chunks, nullptr).bytes);
        const BackwardScratch scratch(plan_, waiting, chunks, lease.data());
        scratch_ = &scratch;
        if (plan_.waits()) {
            for (std::int64_t i = 0; i < plan_.keys().count(); ++i) add_up(plan_.keys().at(i));
        }
        for (std::int64_t i = 0; i < plan_.keys().count(); ++i) meet(plan_.keys().at(i));
    }

private:
    // A block of queries, and keys that it sees.
    struct Pair {
        std::int64_t head;
        Range queries;
        Range keys;
        std::int64_t place;  // of its first row among those that wait
    };

    // Blocks of queries of some chunks.
    Range blocks_of(const Range& chunks) const {
        const std::int64_t blocks = plan_.blocks_of_group();
        return {chunk(blocks, plan_.chunks(), chunks.begin).begin,
                chunk(blocks, plan_.chunks(), chunks.end - 1).end};
    }

    // Nothing where it sees none of the keys.
    Pair pair_of(std::int64_t block, const Range& keys) const {
        const std::int64_t of_head = plan_.queries().count();
        const Range queries = plan_.queries().at(block % of_head);
        const std::int64_t place = plan_.waits() ? block - blocks_of(chunks_).begin : 0;
        return {.head = head_.first_head() + block / of_head,
                .queries = queries,
                .keys = {keys.begin, std::min(keys.end, plan_.end_of_keys(queries))},
                .place = place * plan_.queries().block};
    }

    // The first turn: sums of rows alone.
    void add_up(const Range& keys) {
        pack(keys);
        const Range blocks = blocks_of(chunks_);
        for (std::int64_t block = blocks.begin; block < blocks.end; ++block) {
            const Pair pair = pair_of(block, keys);
            if (pair.keys.size() <= 0) continue;
            make_scores(pair);
            make_sums(pair);
        }
    }

    void meet(const Range& keys) {
        pack(keys);
        pack_along(keys_at(arrays_.k, spec_.k, keys, spec_.head_size), scratch_->keys_along,
                   plan_.rows().heads);
        for (std::int64_t i = chunks_.begin; i < chunks_.end; ++i) {
            float* const sums = sums_of(i, keys);
            std::memset(sums, 0,
                        static_cast<std::size_t>(keys.size() * plan_.rows().sums * kFloat));
            const Range blocks = blocks_of({i, i + 1});
            for (std::int64_t block = blocks.begin; block < blocks.end; ++block) {
                const Pair pair = pair_of(block, keys);
                if (pair.keys.size() <= 0) continue;
                make_scores(pair);
                if (!plan_.waits()) make_sums(pair);
                differentiate(pair);
                multiply(pair, sums);
            }
        }
        if (shared_ == nullptr) head_.finish(arrays_, keys, scratch_->sums, own_distance());
    }

    std::int64_t own_distance() const { return plan_.keys().block * plan_.rows().sums; }
    float* sums_of(std::int64_t place, const Range& keys) const {
        if (shared_ == nullptr) return scratch_->sums + (place - chunks_.begin) * own_distance();
        return shared_ + (place * spec_.keys + keys.begin) * plan_.rows().sums;
    }

    HeadRows keys_at(const void* array, const AttentionStrides& it, const Range& keys,
                     std::int64_t size) const {
        return {.dtype = spec_.dtype,
                .first = head_.key_of(array, it, keys.begin),
                .step = it.row,
                .count = keys.size(),
                .size = size};
    }

    void pack(const Range& keys) const {
        const std::int64_t row = plan_.rows().across;
        pack_across(keys_at(arrays_.k, spec_.k, keys, spec_.head_size), scratch_->keys_across, row);
        pack_across(keys_at(arrays_.v, spec_.v, keys, spec_.value_size), scratch_->values_across,
                    row);
    }

    void run(const Brgemm& kernel, const void* a, const void* b, void* c) {
        kernel({.a = a, .b = b, .c = c, .batch = 1, .tiles = tiles_.state()});
    }

    void make_scores(const Pair& it) {
        const AttentionBackwardPlan::Kernels& kernels =
            plan_.kernels(it.queries.size(), it.keys.size());
        run(*kernels.scores, head_.row_of(arrays_.q, spec_.q, it.head, it.queries.begin),
            scratch_->keys_across, scratch_->scores);
        run(*kernels.diff_weights,
            head_.row_of(arrays_.diff_out, spec_.out, it.head, it.queries.begin),
            scratch_->values_across, scratch_->diff_weights);
    }

    // What all programs of scores read first; returns what comes behind.
    RowArgs::Operand* begin(const Pair& it, RowArgs& args) const {
        args.rows = it.queries.size();
        args.columns = it.keys.size();
        args.scratch = scratch_->program;
        auto* next = args.operands.data();
        *next++ = {scratch_->scores, plan_.rows().scores * kFloat};
        *next++ = {const_cast<float*>(&plan_.factor()), 0};
        if (spec_.mask_type) {
            const AttentionStrides& mask = spec_.mask;
            const std::int64_t size = size_of(*spec_.mask_type);
            const std::int64_t element = head_.batch() * mask.batch + it.head * mask.head +
                                         it.queries.begin * mask.row + it.keys.begin;
            *next++ = {static_cast<char*>(const_cast<void*>(arrays_.mask)) + element * size,
                       mask.row * size};
        }
        if (hides(it)) {
            *next++ = {const_cast<float*>(plan_.later().at(it.queries, it.keys)), -kFloat};
        }
        return next;
    }
    bool hides(const Pair& it) const { return plan_.later().hides(it.queries, it.keys); }

    void make_sums(const Pair& it) const {
        const bool is_first = it.keys.begin == 0;
        const RowArgs::Operand highest(scratch_->highest + it.place, kFloat);
        const RowArgs::Operand totals(scratch_->totals + it.place, kFloat);
        const RowArgs::Operand weighted(scratch_->weighted + it.place, kFloat);
        const RowArgs::Operand shrinks(scratch_->shrinks, kFloat);
        RowArgs args;
        RowArgs::Operand* const behind = begin(it, args);
        auto* next = behind;
        if (!is_first) *next++ = highest;
        *next++ = highest;
        *next++ = shrinks;
        plan_.highest(is_first, hides(it))(args);
        next = behind;
        *next++ = highest;
        if (!is_first) {
            *next++ = shrinks;
            *next++ = totals;
            *next++ = weighted;
        }
        *next++ = {scratch_->diff_weights, plan_.rows().scores * kFloat};
        *next++ = totals;
        *next++ = weighted;
        plan_.sums(is_first, hides(it))(args);
    }

    void differentiate(const Pair& it) const {
        const std::int64_t row = plan_.rows().weights * size_of(spec_.dtype);
        RowArgs args;
        auto* next = begin(it, args);
        *next++ = {scratch_->highest + it.place, kFloat};
        *next++ = {scratch_->totals + it.place, kFloat};
        *next++ = {scratch_->weighted + it.place, kFloat};
        *next++ = {scratch_->diff_weights, plan_.rows().scores * kFloat};
        *next++ = {const_cast<float*>(&spec_.scale), 0};
        *next++ = {scratch_->weights, row};
        *next++ = {scratch_->diff_scores, row};
        plan_.differentiating(hides(it))(args);
    }

    void multiply(const Pair& it, float* sums) {
        const AttentionBackwardPlan::Kernels& kernels =
            plan_.kernels(it.queries.size(), it.keys.size());
        const AttentionBackwardPlan::Rows& rows = plan_.rows();
        HeadRows packed{
            .dtype = spec_.dtype,
            .first = head_.row_of(arrays_.diff_out, spec_.out, it.head, it.queries.begin),
            .step = spec_.out.row,
            .count = it.queries.size(),
            .size = spec_.value_size};
        pack_along(packed, scratch_->diff_out_along, rows.values);
        packed.first = head_.row_of(arrays_.q, spec_.q, it.head, it.queries.begin);
        packed.step = spec_.q.row;
        packed.size = spec_.head_size;
        pack_along(packed, scratch_->queries_along, rows.heads);
        if (spec_.dtype != DType::f32) {
            packed.first = scratch_->weights;
            packed.step = rows.weights;
            packed.size = it.keys.size();
            pack_along(packed, scratch_->weights_along, rows.across);
            packed.first = scratch_->diff_scores;
            pack_along(packed, scratch_->diff_scores_along, rows.across);
        }
        run(*kernels.diff_values, scratch_->weights_along, scratch_->diff_out_along,
            sums + plan_.key_sums());
        run(*kernels.diff_keys, scratch_->diff_scores_along, scratch_->queries_along, sums);
        make_diff_queries(it, kernels);
    }

    void make_diff_queries(const Pair& it, const AttentionBackwardPlan::Kernels& kernels) {
        const AttentionStrides& strides = plan_.spec().diff_q;
        char* const result = head_.row_of(arrays_.diff_q, strides, it.head, it.queries.begin);
        if (!plan_.waits()) {
            run(*kernels.first_diff_queries, scratch_->diff_scores, scratch_->keys_along, result);
            return;
        }
        float* const waiting = scratch_->diff_queries + it.place * plan_.rows().results;
        run(it.keys.begin == 0 ? *kernels.first_diff_queries : *kernels.diff_queries,
            scratch_->diff_scores, scratch_->keys_along, waiting);
        if (it.keys.end < plan_.end_of_keys(it.queries)) return;
        RowArgs args;
        args.rows = it.queries.size();
        args.columns = spec_.head_size;
        args.operands[0] = {waiting, plan_.rows().results * kFloat};
        args.operands[1] = {result, strides.row * size_of(spec_.dtype)};
        plan_.storing()(args);
    }

    const AttentionBackwardPlan& plan_;
    const AttentionSpec& spec_;
    const AttentionBackwardArrays& arrays_;
    const KeyHead& head_;
    Range chunks_;
    float* shared_;
    const BackwardScratch* scratch_ = nullptr;
    KeptTiles tiles_;
};

AttentionBackwardSpec checked(AttentionBackwardSpec spec) {
    spec.forward = checked(spec.forward);
    if (spec.forward.queries <= 1) spec.diff_q.row = spec.forward.head_size;
    if (spec.diff_q.row < spec.forward.head_size || spec.diff_q.row > kMostAttentionElements) {
        throw std::invalid_argument(
            "rows of diff_q are nearer than the size of a head or farther than 2^24 elements");
    }
    return spec;
}

}  // namespace

AttentionBackward::AttentionBackward(const AttentionBackwardSpec& spec) : spec_(checked(spec)) {
    const AttentionSpec& it = spec_.forward;
    if (it.batch * it.heads * it.queries * it.keys * it.value_size == 0) return;
    plan_ = std::make_shared<const AttentionBackwardPlan>(spec_);
}

void AttentionBackward::run(const AttentionBackwardArrays& arrays) const {
    const AttentionSpec& it = spec_.forward;
    if (plan_ == nullptr) {
        HeadsExtents extents{it.batch, it.heads, it.queries, it.head_size};
        clear(it.dtype, extents, spec_.diff_q, arrays.diff_q);
        extents = {it.batch, it.kv_heads, it.keys, it.head_size};
        clear(it.dtype, extents, spec_.diff_k, arrays.diff_k);
        extents.size = it.value_size;
        return clear(it.dtype, extents, spec_.diff_v, arrays.diff_v);
    }
    const WorkOf work(spec_.flops(), spec_.bytes());
    const std::int64_t parts = plan_->parts_of_group(num_threads());
    const std::int64_t of_group = plan_->chunks() * it.keys * plan_->rows().sums;
    const bool shares = parts > 1;
    const WorkspacePool::Lease shared(*workspaces_,
                                      shares ? plan_->groups() * of_group * kFloat : 0);
    float* const sums = reinterpret_cast<float*>(shared.data());
    parallel_for(plan_->groups() * parts, [&](std::int64_t task) {
        const std::int64_t group = task / parts;
        const Range chunks = chunk(plan_->chunks(), parts, task % parts);
        const KeyHead head(*plan_, group);
        BackwardTask(*plan_, arrays, head, chunks, shares ? sums + group * of_group : nullptr)
            .run(*workspaces_);
    });
    if (!shares) return;
    const Blocks& blocks = plan_->keys();
    parallel_for(plan_->groups() * blocks.count(), [&](std::int64_t task) {
        const std::int64_t group = task / blocks.count();
        const Range keys = blocks.at(task % blocks.count());
        KeyHead(*plan_, group)
            .finish(arrays, keys, sums + group * of_group + keys.begin * plan_->rows().sums,
                    it.keys * plan_->rows().sums);
    });
}

}  // namespace dlprim
