#include "primitives/attention/byte_attention_plan.h"

#include <algorithm>

#include "primitives/attention/attention_plan.h"
#include "primitives/tensor/quantization.h"

namespace dlprim {
namespace {

constexpr std::int64_t kByteQueries = 64;
constexpr std::int64_t kTileRows = 16;
// Scores of a block, which are in the second cache twice: as bytes or floats, and as weights.
constexpr std::int64_t kScores = std::int64_t{1} << 17;

// Numbers of keys that there are kernels for, where queries do not see those that come later.
constexpr std::int64_t kKeyCounts = 32;
constexpr std::int64_t kFewestKeys = 64;

ByteAttentionPlan::End end_of(double scale, const std::optional<ByteSteps>& steps) {
    if (!steps) return {.scale = static_cast<float>(scale)};
    const ResultRange range =
        held_range({.zero_point = steps->zero_point}, steps->type, Activation::none);
    return {.scale = static_cast<float>(scale / static_cast<double>(steps->scale)),
            .lowest = range.lowest,
            .highest = range.highest,
            .zero_point = range.zero_point};
}

// Of an operand that the kernel takes as int8.
std::int32_t signed_zero(const ByteSteps& steps) {
    return steps.zero_point - (steps.type == DType::u8 ? 128 : 0);
}

double product(const ByteSteps& a, const ByteSteps& b) {
    return static_cast<double>(a.scale) * static_cast<double>(b.scale);
}

}  // namespace

ByteAttentionPlan::ByteAttentionPlan(const ByteAttentionSpec& spec)
    : spec_(spec),
      scores_end_(end_of(product(spec.q, spec.k), spec.scores)),
      results_end_(end_of(product(spec.weights, spec.v), spec.out)) {
    const AttentionSpec& shape = spec_.shape;
    const std::int64_t step = std::clamp(kScores / shape.keys, kTileRows, kByteQueries);
    queries_ = {shape.queries, equal_step(shape.queries, step, 1)};
    if (queries_.count() > 1) queries_.block = rounded_up(queries_.block, 4);
    keys_step_ = rounded_up((shape.keys + kKeyCounts - 1) / kKeyCounts, kFewestKeys);
    rows_ = {.keys = padded(shape.keys, DType::f32),
             .values = rounded_up(shape.value_size, kTileRows),
             .scores = padded(shape.keys, scores_type()),
             .weights = padded(shape.keys, spec.weights.type)};
    for (std::int64_t i = 0; i < queries_.count(); ++i) {
        make_kernels(queries_.at(i).size(), keys_of(queries_.at(i)).size());
    }
    if (spec.q.zero_point != 0) {
        shifts_ = brgemm({.m = 1,
                          .n = shape.keys,
                          .k = shape.head_size,
                          .ldb = rows_.keys,
                          .a_type = spec.q.type,
                          .b_type = DType::s8,
                          .c_type = DType::s32,
                          .zero_point_a = true,
                          .zero_point_b = signed_zero(spec.k) != 0});
    }
    make_programs();
    if (shape.causal) later_ = LaterKeys(queries_.block + keys_step_, shape.keys, shape.past);
}

Range ByteAttentionPlan::keys_of(const Range& queries) const {
    const AttentionSpec& shape = spec_.shape;
    if (!shape.causal) return {0, shape.keys};
    return {0, std::min(shape.keys, rounded_up(queries.end + shape.past, keys_step_))};
}

std::int64_t ByteAttentionPlan::parts_of_group(int threads) const {
    return std::min(even_parts(groups(), threads), blocks_of_group());
}

void ByteAttentionPlan::make_kernels(std::int64_t queries, std::int64_t keys) {
    Kernels& made = kernels_[{queries, keys}];
    if (made.scores != nullptr) return;
    made.scores = brgemm({.m = queries,
                          .n = keys,
                          .k = spec_.shape.head_size,
                          .lda = spec_.shape.q.row,
                          .ldb = rows_.keys,
                          .ldc = rows_.scores,
                          .a_type = spec_.q.type,
                          .b_type = DType::s8,
                          .c_type = scores_type(),
                          .zero_point_b = signed_zero(spec_.k) != 0,
                          .epilogue = {.int_bias = spec_.q.zero_point != 0,
                                       .scale = Scale::tensor,
                                       .range = spec_.scores.has_value()}});
    made.results = brgemm({.m = queries,
                           .n = spec_.shape.value_size,
                           .k = keys,
                           .lda = rows_.weights,
                           .ldb = rows_.values,
                           .ldc = spec_.shape.out.row,
                           .a_type = spec_.weights.type,
                           .b_type = DType::s8,
                           .c_type = out_type(),
                           .zero_point_a = spec_.weights.zero_point != 0,
                           .zero_point_b = signed_zero(spec_.v) != 0,
                           .epilogue = {.scale = Scale::tensor, .range = spec_.out.has_value()}});
}

void ByteAttentionPlan::make_programs() {
    const auto zero = static_cast<float>(spec_.weights.zero_point);
    for (const bool hides : {false, true}) {
        if (hides && !spec_.shape.causal) continue;
        const ScoresSpec scores{
            .products = scores_type(), .mask = spec_.shape.mask_type, .hides_later = hides};
        highest_.at(hides ? 1 : 0) = highest_kernel(scores);
        weights_.at(hides ? 1 : 0) = weights_kernel(scores, spec_.weights.type, zero);
    }
    to_signed_ = signed_kernel();
    const float step = spec_.scores ? spec_.scores->scale : 1;
    factor_ = score_factor({.mask = spec_.shape.mask_type}, spec_.shape.scale * step);
    scores_zero_ = spec_.scores ? static_cast<float>(spec_.scores->zero_point) : 0;
}

std::int64_t ByteAttentionPlan::scratch_floats() const {
    return weights_.front()->scratch_floats(spec_.shape.keys);
}

}  // namespace dlprim
