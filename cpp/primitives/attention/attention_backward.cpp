#include "primitives/attention/attention_backward.h"

#include <algorithm>
#include <stdexcept>

#include "primitives/attention/attention_backward_blocks.h"
#include "primitives/tensor/parallel.h"

namespace dlprim {
namespace {

// Adds sums of all chunks, so many floats from each other, and stores them.
struct ChunkSums {
    float* first = nullptr;
    std::int64_t row = 0;  // floats from row to row
    std::int64_t distance = 0;
    std::int64_t rows = 0;
    std::int64_t size = 0;

    void finish(const AttentionBackwardPlan& plan, void* result, std::int64_t result_row) const {
        const DType dtype = plan.spec().forward.dtype;
        RowArgs args;
        args.rows = rows;
        args.columns = size;
        args.operands[0] = {first, row * kFloat};
        const RowArgs::Operand stored(result, result_row * size_of(dtype));
        if (plan.chunks() == 1) {
            args.operands[1] = stored;
            return plan.storing()(args);
        }
        for (std::int64_t i = 1; i < plan.chunks(); ++i) {
            const bool is_last = i == plan.chunks() - 1;
            args.operands[1] = {first + i * distance, row * kFloat};
            args.operands[2] = is_last ? stored : args.operands[0];
            (is_last ? plan.adding_last() : plan.adding())(args);
        }
    }
};

// Sums of the keys of a block, those of a chunk as far from those of the next.
void finish(const AttentionBackwardPlan& plan, const AttentionBackwardArrays& arrays,
            const KeyHead& head, const Range& keys, const ChunkSums& of_keys) {
    const AttentionBackwardSpec& spec = plan.spec();
    ChunkSums sums = of_keys;
    sums.row = plan.rows().sums;
    sums.rows = keys.size();
    sums.size = spec.forward.head_size;
    sums.finish(plan, head.key_of(arrays.diff_k, spec.diff_k, keys.begin), spec.diff_k.row);
    sums.first += plan.value_sums();
    sums.size = spec.forward.value_size;
    sums.finish(plan, head.key_of(arrays.diff_v, spec.diff_v, keys.begin), spec.diff_v.row);
}

// Some chunks of queries that share keys and values, on one thread.
class BackwardTask {
public:
    // `shared` is where sums of all keys of all chunks are that other tasks have a part of, or
    // null.
    BackwardTask(const AttentionBackwardPlan& plan, const AttentionBackwardArrays& arrays,
                 std::int64_t group, const Range& chunks, float* shared)
        : plan_(plan),
          arrays_(arrays),
          head_(plan.spec().forward, group),
          chunks_(chunks),
          blocks_(blocks_of(chunks)),
          shared_(shared) {}

    void run(WorkspacePool& pool) {
        const bool sums_here = shared_ == nullptr && !plan_.sums_in_place();
        const std::int64_t chunks = sums_here ? chunks_.size() : 0;
        const std::int64_t waiting = plan_.waits() ? blocks_.size() : 1;
        const WorkspacePool::Lease lease(pool,
                                         BackwardScratch(plan_, waiting, chunks, nullptr).bytes);
        const BackwardScratch scratch(plan_, waiting, chunks, lease.data());
        BackwardBlocks made(plan_, arrays_, head_, scratch);
        const Blocks& keys = plan_.keys();
        if (plan_.waits()) {
            for (std::int64_t i = 0; i < keys.count(); ++i) add_up(made, keys.at(i));
        }
        for (std::int64_t i = 0; i < keys.count(); ++i) {
            differentiate(made, keys.at(i), scratch.sums);
        }
    }

private:
    // Blocks of queries of some chunks.
    Range blocks_of(const Range& chunks) const {
        const std::int64_t blocks = plan_.blocks_of_group();
        return {chunk(blocks, plan_.chunks(), chunks.begin).begin,
                chunk(blocks, plan_.chunks(), chunks.end - 1).end};
    }

    // Without keys where it sees none of them.
    BackwardPair pair_of(std::int64_t block, const Range& keys) const {
        const std::int64_t of_head = plan_.queries().count();
        const Range queries = plan_.queries().at(block % of_head);
        const std::int64_t end = std::min(keys.end, plan_.end_of_keys(queries));
        const std::int64_t place = plan_.waits() ? block - blocks_.begin : 0;
        return {.head = head_.first_head() + block / of_head,
                .queries = queries,
                .keys = {keys.begin, std::max(keys.begin, end)},
                .place = place * plan_.queries().block};
    }

    // The first turn: sums of rows alone.
    void add_up(BackwardBlocks& made, const Range& keys) const {
        made.pack_across(keys);
        for (std::int64_t block = blocks_.begin; block < blocks_.end; ++block) {
            const BackwardPair pair = pair_of(block, keys);
            if (pair.keys.size() > 0) made.add_up(pair);
        }
    }

    void differentiate(BackwardBlocks& made, const Range& keys, float* own) const {
        const bool adds_only = plan_.spec().forward.causal;
        made.pack_across(keys);
        made.pack_along(keys);
        for (std::int64_t i = chunks_.begin; i < chunks_.end; ++i) {
            const KeySums sums = sums_of(i, keys, own);
            if (adds_only) clear_sums(sums, keys);
            const Range blocks = blocks_of({i, i + 1});
            for (std::int64_t block = blocks.begin; block < blocks.end; ++block) {
                BackwardPair pair = pair_of(block, keys);
                pair.is_first = block == blocks.begin && !adds_only;
                if (pair.keys.size() > 0) made.differentiate(pair, sums);
            }
        }
        if (own != nullptr) {
            finish(plan_, arrays_, head_, keys, {.first = own, .distance = own_distance()});
        }
    }

    std::int64_t own_distance() const { return plan_.keys().block * plan_.rows().sums; }

    KeySums sums_of(std::int64_t place, const Range& keys, float* own) const {
        const AttentionBackwardSpec& spec = plan_.spec();
        if (plan_.sums_in_place()) {
            const auto at = [&](void* array, const AttentionStrides& it) {
                return reinterpret_cast<float*>(head_.key_of(array, it, keys.begin));
            };
            return {at(arrays_.diff_k, spec.diff_k), at(arrays_.diff_v, spec.diff_v)};
        }
        float* const first =
            own != nullptr ? own + (place - chunks_.begin) * own_distance()
                           : shared_ + (place * spec.forward.keys + keys.begin) * plan_.rows().sums;
        return {first, first + plan_.value_sums()};
    }

    void clear_sums(const KeySums& sums, const Range& keys) const {
        const AttentionSpec& spec = plan_.spec().forward;
        HeadsExtents extents{1, 1, keys.size(), spec.head_size};
        clear(DType::f32, extents, {.row = plan_.row_of_key_sums()}, sums.keys);
        extents.size = spec.value_size;
        clear(DType::f32, extents, {.row = plan_.row_of_value_sums()}, sums.values);
    }

    const AttentionBackwardPlan& plan_;
    const AttentionBackwardArrays& arrays_;
    KeyHead head_;
    Range chunks_;
    Range blocks_;
    float* shared_;
};

void require_row(std::int64_t row, std::int64_t size) {
    if (row < size || row > kMostAttentionElements) {
        throw std::invalid_argument(
            "rows of a gradient are nearer than their size or farther than 2^24 elements");
    }
}

AttentionBackwardSpec checked(AttentionBackwardSpec spec) {
    spec.forward = checked(spec.forward);
    const AttentionSpec& it = spec.forward;
    if (it.queries <= 1) spec.diff_q.row = it.head_size;
    if (it.keys <= 1) {
        spec.diff_k.row = it.head_size;
        spec.diff_v.row = it.value_size;
    }
    require_row(spec.diff_q.row, it.head_size);
    require_row(spec.diff_k.row, it.head_size);
    require_row(spec.diff_v.row, it.value_size);
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
        BackwardTask(*plan_, arrays, group, chunks, shares ? sums + group * of_group : nullptr)
            .run(*workspaces_);
    });
    if (!shares) return;
    const Blocks& blocks = plan_->keys();
    parallel_for(plan_->groups() * blocks.count(), [&](std::int64_t task) {
        const std::int64_t group = task / blocks.count();
        const Range keys = blocks.at(task % blocks.count());
        finish(*plan_, arrays, KeyHead(it, group), keys,
               {.first = sums + group * of_group + keys.begin * plan_->rows().sums,
                .distance = it.keys * plan_->rows().sums});
    });
}

}  // namespace dlprim
