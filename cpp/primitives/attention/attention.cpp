#include "primitives/attention/attention.h"

#include <cstring>

#include "brgemm/amx/kept_tiles.h"
#include "primitives/attention/attention_packing.h"
#include "primitives/attention/attention_plan.h"
#include "primitives/attention/stored_attention.h"
#include "primitives/tensor/parallel.h"

namespace dlprim {
namespace {

// Pieces of a task's scratch; those of queries have a place for each of the blocks that wait.
struct TaskScratch {
    TaskScratch(const AttentionPlan& plan, std::int64_t waiting, char* base) {
        ScratchCutter cutter(base);
        const AttentionSpec& spec = plan.spec();
        const AttentionPlan::Rows& rows = plan.rows();
        const std::int64_t queries = plan.queries().block, size = size_of(spec.dtype);
        const std::int64_t together = elements_per_word(spec.dtype);
        keys = cutter.take((spec.head_size + together - 1) / together * rows.keys * kFloat);
        values = cutter.take((plan.whole_keys(plan.keys().block) + together - 1) / together *
                             rows.values * kFloat);
        scores = cutter.take(queries * rows.scores * kFloat);
        powers = spec.dtype == DType::f32 ? scores : cutter.take(queries * rows.powers * size);
        program = cutter.take_floats(plan.scratch_floats());
        shrinks = cutter.take_floats(queries);
        highest = cutter.take_floats(waiting * queries);
        sums = cutter.take_floats(waiting * queries);
        results =
            plan.sums_in_place() ? nullptr : cutter.take_floats(waiting * queries * rows.results);
        bytes = cutter.bytes();
    }

    char* keys;
    char* values;
    char* scores;
    char* powers;
    float* program;
    float* shrinks;
    float* highest;
    float* sums;
    float* results;
    std::int64_t bytes;
};

// Some blocks of queries that share keys and values, on one thread.
class AttentionTask {
public:
    AttentionTask(const AttentionPlan& plan, const AttentionArrays& arrays, std::int64_t group,
                  Range blocks)
        : plan_(plan),
          spec_(plan.spec()),
          arrays_(arrays),
          batch_(group / spec_.kv_heads),
          kv_head_(group % spec_.kv_heads),
          blocks_(blocks) {}

    void run(WorkspacePool& pool) {
        const std::int64_t waiting = plan_.keys().count() > 1 ? blocks_.size() : 1;
        const WorkspacePool::Lease lease(pool, TaskScratch(plan_, waiting, nullptr).bytes);
        const TaskScratch scratch(plan_, waiting, lease.data());
        scratch_ = &scratch;
        for (std::int64_t i = 0; i < plan_.keys().count(); ++i) {
            const Range keys = plan_.keys().at(i);
            pack(keys);
            for (std::int64_t block = blocks_.begin; block < blocks_.end; ++block) {
                attend(block, keys, waiting == 1 ? 0 : block - blocks_.begin);
            }
        }
    }

private:
    static char* at(const void* array, std::int64_t element, DType dtype) {
        return static_cast<char*>(const_cast<void*>(array)) + element * size_of(dtype);
    }
    char* row_of(const void* array, const AttentionStrides& it, std::int64_t head,
                 std::int64_t row) const {
        return at(array, batch_ * it.batch + head * it.head + row * it.row, spec_.dtype);
    }

    void pack(const Range& keys) const {
        const AttentionPlan::Rows& rows = plan_.rows();
        const HeadRows packed{
            .dtype = spec_.dtype,
            .first = row_of(arrays_.k, spec_.k, kv_head_, keys.begin),
            .step = spec_.k.row,
            .count = keys.size(),
            .size = spec_.head_size,
        };
        clear_columns(reinterpret_cast<float*>(scratch_->keys), spec_.head_size, rows.keys,
                      {keys.size(), plan_.whole_keys(keys.size())});
        pack_across(packed, scratch_->keys, rows.keys);
        HeadRows values = packed;
        values.first = row_of(arrays_.v, spec_.v, kv_head_, keys.begin);
        values.step = spec_.v.row;
        values.size = spec_.value_size;
        pack_along(values, scratch_->values, rows.values);
        if (spec_.dtype != DType::f32) return;
        for (auto key = keys.size(); key < plan_.whole_values(keys.size()); ++key) {
            std::memset(scratch_->values + key * rows.values * kFloat, 0,
                        static_cast<std::size_t>(spec_.value_size * kFloat));
        }
    }

    static void clear_columns(float* first, std::int64_t rows, std::int64_t row,
                              const Range& columns) {
        for (std::int64_t i = 0; i < rows; ++i) {
            for (auto j = columns.begin; j < columns.end; ++j) first[i * row + j] = 0;
        }
    }

    // What the block has of these keys, added to what it had of those before.
    void attend(std::int64_t block, const Range& packed, std::int64_t place) {
        const std::int64_t of_head = plan_.queries().count();
        const Range queries = plan_.queries().at(block % of_head);
        const std::int64_t end = plan_.end_of_keys(queries);
        if (packed.begin >= end) return;
        const Range keys{packed.begin, std::min(packed.end, end)};
        const bool is_first = keys.begin == 0;
        const std::int64_t head = kv_head_ * (spec_.heads / spec_.kv_heads) + block / of_head;
        const std::int64_t first = place * plan_.queries().block;
        float* const results =
            plan_.sums_in_place()
                ? reinterpret_cast<float*>(row_of(arrays_.out, spec_.out, head, queries.begin))
                : scratch_->results + first * plan_.rows().results;
        const AttentionPlan::Kernels& kernels = plan_.kernels(queries.size(), keys.size());
        make_scores(kernels, row_of(arrays_.q, spec_.q, head, queries.begin), queries, keys.size());
        make_powers(head, queries, keys, first);
        if (!is_first) shrink(results, queries.size());
        (*(is_first ? kernels.first_values : kernels.values))({.a = scratch_->powers,
                                                               .b = scratch_->values,
                                                               .c = results,
                                                               .batch = 1,
                                                               .tiles = tiles_.state()});
        if (keys.end == end) divide(results, scratch_->sums + first, head, queries);
    }

    void make_scores(const AttentionPlan::Kernels& kernels, const char* q, const Range& queries,
                     std::int64_t keys) {
        const Blocks parts = plan_.halves(keys);
        for (std::int64_t i = 0; i < parts.count(); ++i) {
            const std::int64_t first = parts.at(i).begin * kFloat;
            (*kernels.scores.at(static_cast<std::size_t>(i)))(
                {.a = q,
                 .b = scratch_->keys + first,
                 .c = scratch_->scores + first,
                 .batch = 1,
                 .a_ahead = next_rows(i == 0, queries.begin) - q,
                 .tiles = tiles_.state()});
        }
        // Of queries that are no finite numbers these are none either.
        clear_columns(reinterpret_cast<float*>(scratch_->scores), queries.size(),
                      plan_.rows().scores, {keys, plan_.whole_values(keys)});
    }

    // Of keys or values that the next group will pack.
    const char* next_rows(bool are_keys, std::int64_t row) const {
        const std::int64_t next = batch_ * spec_.kv_heads + kv_head_ + 1;
        const AttentionStrides& it = are_keys ? spec_.k : spec_.v;
        return at(are_keys ? arrays_.k : arrays_.v,
                  next / spec_.kv_heads * it.batch + next % spec_.kv_heads * it.head + row * it.row,
                  spec_.dtype);
    }

    void make_powers(std::int64_t head, const Range& queries, const Range& keys,
                     std::int64_t first) const {
        const AttentionPlan::Rows& rows = plan_.rows();
        const bool is_first = keys.begin == 0, hides = plan_.later().hides(queries, keys);
        RowArgs args;
        args.rows = queries.size();
        args.columns = keys.size();
        args.scratch = scratch_->program;
        auto* next = args.operands.data();
        *next++ = {scratch_->scores, rows.scores * kFloat};
        *next++ = {const_cast<float*>(&plan_.factor()), 0};
        if (spec_.mask_type) {
            const AttentionStrides& mask = spec_.mask;
            const std::int64_t element =
                batch_ * mask.batch + head * mask.head + queries.begin * mask.row + keys.begin;
            *next++ = {at(arrays_.mask, element, *spec_.mask_type),
                       mask.row * size_of(*spec_.mask_type)};
        }
        if (hides) *next++ = {const_cast<float*>(plan_.later().at(queries, keys)), -kFloat};
        const AttentionPlan::Programs& programs = plan_.programs(is_first, hides);
        const RowArgs::Operand highest(scratch_->highest + first, kFloat);
        const RowArgs::Operand sums(scratch_->sums + first, kFloat);
        const RowArgs::Operand shrinks(scratch_->shrinks, kFloat);
        RowArgs::Operand* const behind = next;
        if (!is_first) *next++ = highest;
        *next++ = highest;
        *next++ = shrinks;
        (*programs.highest)(args);
        next = behind;
        *next++ = highest;
        if (!is_first) {
            *next++ = shrinks;
            *next++ = sums;
        }
        *next++ = {scratch_->powers, rows.powers * size_of(spec_.dtype)};
        *next++ = sums;
        (*programs.powers)(args);
    }

    RowArgs of_results(float* results, const float* numbers, std::int64_t rows) const {
        RowArgs args;
        args.rows = rows;
        args.columns = spec_.value_size;
        args.operands[0] = {results, plan_.rows().results * kFloat};
        args.operands[1] = {const_cast<float*>(numbers), kFloat};
        args.operands[2] = args.operands[0];
        return args;
    }

    void shrink(float* results, std::int64_t rows) const {
        plan_.shrinking()(of_results(results, scratch_->shrinks, rows));
    }

    void divide(float* results, const float* sums, std::int64_t head, const Range& queries) const {
        RowArgs args = of_results(results, sums, queries.size());
        args.operands[2] = {row_of(arrays_.out, spec_.out, head, queries.begin),
                            spec_.out.row * size_of(spec_.dtype)};
        plan_.dividing()(args);
    }

    const AttentionPlan& plan_;
    const AttentionSpec& spec_;
    const AttentionArrays& arrays_;
    std::int64_t batch_;
    std::int64_t kv_head_;
    Range blocks_;
    const TaskScratch* scratch_ = nullptr;
    KeptTiles tiles_;
};

}  // namespace

Attention::Attention(const AttentionSpec& spec) : spec_(checked(spec)) {
    if (spec_.batch * spec_.heads * spec_.queries * spec_.keys * spec_.value_size == 0) return;
    if (StoredAttention::serves(spec_)) {
        stored_ = std::make_shared<const StoredAttention>(spec_);
        return;
    }
    spec_ = validated(spec_);
    plan_ = std::make_shared<const AttentionPlan>(spec_, this_machine());
}

void Attention::forward(const AttentionArrays& arrays) const {
    if (stored_ != nullptr) return stored_->forward(arrays, *workspaces_);
    if (plan_ == nullptr) {
        return clear(spec_.dtype, {spec_.batch, spec_.heads, spec_.queries, spec_.value_size},
                     spec_.out, arrays.out);
    }
    const WorkOf work(spec_.flops(), spec_.bytes());
    const std::int64_t parts = plan_->parts_of_group(num_threads());
    parallel_for(plan_->groups() * parts, [&](std::int64_t task) {
        const Range blocks = chunk(plan_->blocks_of_group(), parts, task % parts);
        AttentionTask(*plan_, arrays, task / parts, blocks).run(*workspaces_);
    });
}

}  // namespace dlprim
