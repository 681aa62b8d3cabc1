#include "primitives/attention/byte_attention.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "brgemm/amx/kept_tiles.h"
#include "primitives/attention/byte_attention_plan.h"
#include "primitives/reorder/serial_moves.h"
#include "primitives/tensor/parallel.h"

namespace dlprim {
namespace {

std::int64_t words_of(std::int64_t bytes) { return (bytes + kWord - 1) / kWord; }

struct ByteTaskScratch {
    ByteTaskScratch(const ByteAttentionPlan& plan, char* base) {
        ScratchCutter cutter(base);
        const AttentionSpec& shape = plan.spec().shape;
        const ByteAttentionPlan::Rows& rows = plan.rows();
        const std::int64_t queries = plan.queries().block;
        keys = cutter.take(words_of(shape.head_size) * rows.keys * kWord);
        values = cutter.take(words_of(shape.keys) * rows.values * kWord);
        scores = cutter.take(queries * rows.scores * size_of(plan.scores_type()));
        weights = cutter.take(queries * rows.weights);
        program = cutter.take_floats(plan.scratch_floats());
        highest = cutter.take_floats(queries);
        zeros = cutter.take(shape.head_size);
        shifts = reinterpret_cast<std::int32_t*>(cutter.take(shape.keys * size_of(DType::s32)));
        bytes = cutter.bytes();
    }

    char* keys;
    char* values;
    char* scores;
    char* weights;
    float* program;
    float* highest;
    char* zeros;
    std::int32_t* shifts;
    std::int64_t bytes;
};

// Some blocks of queries that share keys and values, on one thread.
class ByteAttentionTask {
public:
    ByteAttentionTask(const ByteAttentionPlan& plan, const AttentionArrays& arrays,
                      std::int64_t group, Range blocks)
        : plan_(plan),
          spec_(plan.spec()),
          shape_(plan.spec().shape),
          arrays_(arrays),
          batch_(group / shape_.kv_heads),
          kv_head_(group % shape_.kv_heads),
          blocks_(blocks) {}

    void run(WorkspacePool& pool) {
        const WorkspacePool::Lease lease(pool, ByteTaskScratch(plan_, nullptr).bytes);
        const ByteTaskScratch scratch(plan_, lease.data());
        scratch_ = &scratch;
        pack_keys();
        pack_values();
        make_shifts();
        for (std::int64_t block = blocks_.begin; block < blocks_.end; ++block) attend(block);
    }

private:
    static char* at(const void* array, std::int64_t element, DType dtype) {
        return static_cast<char*>(const_cast<void*>(array)) + element * size_of(dtype);
    }
    char* row_of(const void* array, const AttentionStrides& it, std::int64_t head, std::int64_t row,
                 DType dtype) const {
        return at(array, batch_ * it.batch + head * it.head + row * it.row, dtype);
    }

    void pack_keys() const {
        const char* const keys = row_of(arrays_.k, shape_.k, kv_head_, 0, spec_.k.type);
        const std::int64_t words = plan_.rows().keys;
        if (spec_.keys_are_columns) {
            pack({.from = spec_.k.type,
                  .to = spec_.k.type,
                  .src = keys,
                  .src_row = shape_.k.row,
                  .rows = shape_.head_size,
                  .columns = shape_.keys,
                  .dst = scratch_->keys,
                  .dst_row = words * kWord});
            return;
        }
        transpose({.src = keys,
                   .dst = scratch_->keys,
                   .src_rows = {.stride = shape_.k.row},
                   .dst_rows = {.stride = words * kWord},
                   .src_bytes = shape_.head_size,
                   .dst_bytes = shape_.keys * kWord,
                   .goes_across = true});
        if (spec_.k.type == DType::u8) {
            make_signed(scratch_->keys, words_of(shape_.head_size), shape_.keys, words);
        }
    }

    void pack_values() const {
        pack({.from = spec_.v.type,
              .to = spec_.v.type,
              .src = row_of(arrays_.v, shape_.v, kv_head_, 0, spec_.v.type),
              .src_row = shape_.v.row,
              .rows = shape_.keys,
              .columns = shape_.value_size,
              .dst = scratch_->values,
              .dst_row = plan_.rows().values * kWord});
    }

    void make_shifts() {
        if (plan_.shifts() == nullptr) return;
        std::memset(scratch_->zeros, 0, static_cast<std::size_t>(shape_.head_size));
        (*plan_.shifts())({.a = scratch_->zeros,
                           .b = scratch_->keys,
                           .c = scratch_->shifts,
                           .batch = 1,
                           .zero_point_a = spec_.q.zero_point,
                           .zero_point_b = zero_of(spec_.k)});
    }

    void pack(const GroupedRows& it) const {
        group(it);
        if (it.from != DType::u8) return;
        make_signed(static_cast<char*>(it.dst), words_of(it.rows), it.columns, it.dst_row / kWord);
    }

    void make_signed(char* words, std::int64_t rows, std::int64_t columns,
                     std::int64_t row_words) const {
        RowArgs args;
        args.rows = rows;
        args.columns = columns;
        args.operands[0] = args.operands[1] = {words, row_words * kWord};
        plan_.to_signed()(args);
    }

    void attend(std::int64_t block) {
        const std::int64_t of_head = plan_.queries().count();
        const Range queries = plan_.queries().at(block % of_head);
        const Range keys = plan_.keys_of(queries);
        const std::int64_t head = kv_head_ * (shape_.heads / shape_.kv_heads) + block / of_head;
        const ByteAttentionPlan::Kernels& kernels = plan_.kernels(queries.size(), keys.size());
        multiply(*kernels.scores, plan_.scores_end(),
                 {.a = row_of(arrays_.q, shape_.q, head, queries.begin, spec_.q.type),
                  .b = scratch_->keys,
                  .c = scratch_->scores,
                  .zero_point_b = zero_of(spec_.k),
                  .int_bias = scratch_->shifts});
        make_weights(head, queries, keys);
        multiply(*kernels.results, plan_.results_end(),
                 {.a = scratch_->weights,
                  .b = scratch_->values,
                  .c = row_of(arrays_.out, shape_.out, head, queries.begin, plan_.out_type()),
                  .zero_point_a = spec_.weights.zero_point,
                  .zero_point_b = zero_of(spec_.v)});
    }

    // Of packed bytes, which are int8.
    static std::int32_t zero_of(const ByteSteps& steps) {
        return steps.zero_point - (steps.type == DType::u8 ? 128 : 0);
    }

    void multiply(const Brgemm& kernel, const ByteAttentionPlan::End& end, BrgemmArgs args) {
        args.batch = 1;
        args.scale = &end.scale;
        args.lowest = end.lowest;
        args.highest = end.highest;
        args.zero_point_c = end.zero_point;
        args.tiles = tiles_.state();
        kernel(args);
    }

    void make_weights(std::int64_t head, const Range& queries, const Range& keys) const {
        const bool hides = plan_.later().hides(queries, keys);
        RowArgs args;
        args.rows = queries.size();
        args.columns = keys.size();
        args.scratch = scratch_->program;
        auto* next = args.operands.data();
        *next++ = {scratch_->scores, plan_.rows().scores * size_of(plan_.scores_type())};
        if (spec_.scores) *next++ = {const_cast<float*>(&plan_.scores_zero()), 0};
        *next++ = {const_cast<float*>(&plan_.factor()), 0};
        if (shape_.mask_type) {
            *next++ = {row_of(arrays_.mask, shape_.mask, head, queries.begin, *shape_.mask_type),
                       shape_.mask.row * size_of(*shape_.mask_type)};
        }
        if (hides) *next++ = {const_cast<float*>(plan_.later().at(queries, keys)), -kFloat};
        *next++ = {scratch_->highest, kFloat};
        plan_.highest(hides)(args);
        *next++ = {const_cast<float*>(&spec_.weights.scale), 0};
        *next++ = {scratch_->weights, plan_.rows().weights};
        plan_.weights(hides)(args);
    }

    const ByteAttentionPlan& plan_;
    const ByteAttentionSpec& spec_;
    const AttentionSpec& shape_;
    const AttentionArrays& arrays_;
    std::int64_t batch_;
    std::int64_t kv_head_;
    Range blocks_;
    const ByteTaskScratch* scratch_ = nullptr;
    KeptTiles tiles_;
};

ByteAttentionSpec validated(ByteAttentionSpec spec) {
    spec.shape = validated(spec.shape);
    const AttentionSpec& it = spec.shape;
    if (it.batch * it.heads * it.queries * it.keys * it.value_size == 0) {
        throw std::invalid_argument("an extent of attention in 8 bits is 0");
    }
    for (const ByteSteps* steps : {&spec.q, &spec.k, &spec.v, &spec.weights}) {
        if (!is_int8(steps->type)) throw std::invalid_argument("an array is not of 8 bits");
    }
    return spec;
}

}  // namespace

ByteAttention::ByteAttention(ByteAttentionSpec spec)
    : plan_(std::make_shared<const ByteAttentionPlan>(validated(std::move(spec)))) {}

void ByteAttention::forward(const AttentionArrays& arrays) const {
    const AttentionSpec& shape = plan_->spec().shape;
    const WorkOf work(shape.flops(), shape.bytes());
    const std::int64_t parts = plan_->parts_of_group(num_threads());
    parallel_for(plan_->groups() * parts, [&](std::int64_t task) {
        const Range blocks = chunk(plan_->blocks_of_group(), parts, task % parts);
        ByteAttentionTask(*plan_, arrays, task / parts, blocks).run(*workspaces_);
    });
}

}  // namespace dlprim
