#include "primitives/attention/attention_backward_blocks.h"

namespace dlprim {

BackwardScratch::BackwardScratch(const AttentionBackwardPlan& plan, std::int64_t waiting,
                                 std::int64_t chunks, char* base) {
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
    diff_queries = plan.waits() ? cutter.take_floats(waiting * queries * rows.results) : nullptr;
    sums = chunks > 0 ? cutter.take_floats(chunks * keys * rows.sums) : nullptr;
    bytes = cutter.bytes();
}

HeadRows BackwardBlocks::keys_at(const void* array, const AttentionStrides& it, const Range& keys,
                                 std::int64_t size) const {
    return {.dtype = spec_.dtype,
            .first = head_.key_of(array, it, keys.begin),
            .step = it.row,
            .count = keys.size(),
            .size = size};
}

void BackwardBlocks::pack_across(const Range& keys) const {
    const std::int64_t row = plan_.rows().across;
    dlprim::pack_across(keys_at(arrays_.k, spec_.k, keys, spec_.head_size), scratch_.keys_across,
                        row);
    dlprim::pack_across(keys_at(arrays_.v, spec_.v, keys, spec_.value_size), scratch_.values_across,
                        row);
}

void BackwardBlocks::pack_along(const Range& keys) const {
    dlprim::pack_along(keys_at(arrays_.k, spec_.k, keys, spec_.head_size), scratch_.keys_along,
                       plan_.rows().heads);
}

void BackwardBlocks::add_up(const BackwardPair& pair) {
    pack_queries(pair);
    make_scores(pair);
    make_sums(pair);
}

void BackwardBlocks::differentiate(const BackwardPair& pair, const KeySums& sums) {
    pack_queries(pair);
    make_scores(pair);
    if (!plan_.waits()) make_sums(pair);
    make_diff_scores(pair);
    make_diff_keys(pair, sums);
    make_diff_queries(pair);
}

void BackwardBlocks::run(const Brgemm& kernel, const void* a, const void* b, void* c) {
    kernel({.a = a, .b = b, .c = c, .batch = 1, .tiles = tiles_.state()});
}

void BackwardBlocks::pack_queries(const BackwardPair& it) const {
    HeadRows packed{.dtype = spec_.dtype, .count = it.queries.size()};
    if (plan_.packs_second(plan_.fetches_values())) {
        packed.first = diff_out_of(it);
        packed.step = spec_.out.row;
        packed.size = spec_.value_size;
        dlprim::pack_along(packed, scratch_.diff_out_along, plan_.rows().values);
    }
    if (plan_.packs_second(plan_.fetches_keys())) {
        packed.first = queries_of(it);
        packed.step = spec_.q.row;
        packed.size = spec_.head_size;
        dlprim::pack_along(packed, scratch_.queries_along, plan_.rows().heads);
    }
}

void BackwardBlocks::make_scores(const BackwardPair& it) {
    const char* const q = queries_of(it);
    const char* const diff_out = diff_out_of(it);
    const KeyHead next = head_.next();
    const bool packs_q = plan_.packs_first(plan_.fetches_keys());
    const bool packs_diff = plan_.packs_first(plan_.fetches_values());
    (*kernels(it).scores)({.a = packs_q ? scratch_.queries_along : q,
                           .b = scratch_.keys_across,
                           .c = scratch_.scores,
                           .batch = 1,
                           .a_ahead = next.key_of(arrays_.k, spec_.k, it.queries.begin) - q,
                           .tiles = tiles_.state()});
    (*kernels(it).diff_weights)(
        {.a = packs_diff ? scratch_.diff_out_along : diff_out,
         .b = scratch_.values_across,
         .c = scratch_.diff_weights,
         .batch = 1,
         .a_ahead = next.key_of(arrays_.v, spec_.v, it.queries.begin) - diff_out,
         .tiles = tiles_.state()});
}

// What all programs of scores read first; returns what comes behind.
RowArgs::Operand* BackwardBlocks::begin(const BackwardPair& it, RowArgs& args) const {
    args.rows = it.queries.size();
    args.columns = it.keys.size();
    args.scratch = scratch_.program;
    auto* next = args.operands.data();
    *next++ = {scratch_.scores, plan_.rows().scores * kFloat};
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
void BackwardBlocks::make_sums(const BackwardPair& it) const {
    const bool is_first = it.keys.begin == 0;
    const RowArgs::Operand highest(scratch_.highest + it.place, kFloat);
    const RowArgs::Operand totals(scratch_.totals + it.place, kFloat);
    const RowArgs::Operand weighted(scratch_.weighted + it.place, kFloat);
    const RowArgs::Operand shrinks(scratch_.shrinks, kFloat);
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
    *next++ = {scratch_.diff_weights, plan_.rows().scores * kFloat};
    *next++ = totals;
    *next++ = weighted;
    plan_.sums(is_first, hides(it))(args);
}

void BackwardBlocks::make_diff_scores(const BackwardPair& it) const {
    const std::int64_t row = plan_.rows().weights * size_of(spec_.dtype);
    RowArgs args;
    auto* next = begin(it, args);
    *next++ = {scratch_.highest + it.place, kFloat};
    *next++ = {scratch_.totals + it.place, kFloat};
    *next++ = {scratch_.weighted + it.place, kFloat};
    *next++ = {scratch_.diff_weights, plan_.rows().scores * kFloat};
    *next++ = {const_cast<float*>(&spec_.scale), 0};
    *next++ = {scratch_.weights, row};
    *next++ = {scratch_.diff_scores, row};
    plan_.differentiating(hides(it))(args);
}

void BackwardBlocks::make_diff_keys(const BackwardPair& it, const KeySums& sums) {
    if (spec_.dtype != DType::f32) {
        HeadRows packed{.dtype = spec_.dtype,
                        .first = scratch_.weights,
                        .step = plan_.rows().weights,
                        .count = it.queries.size(),
                        .size = it.keys.size()};
        dlprim::pack_along(packed, scratch_.weights_along, plan_.rows().across);
        packed.first = scratch_.diff_scores;
        dlprim::pack_along(packed, scratch_.diff_scores_along, plan_.rows().across);
    }
    const bool packs_q = plan_.packs_second(plan_.fetches_keys());
    const bool packs_diff = plan_.packs_second(plan_.fetches_values());
    const AttentionBackwardPlan::Kernels& made = kernels(it);
    run(it.is_first ? *made.first_diff_values : *made.diff_values, scratch_.weights_along,
        packs_diff ? scratch_.diff_out_along : diff_out_of(it), sums.values);
    run(it.is_first ? *made.first_diff_keys : *made.diff_keys, scratch_.diff_scores_along,
        packs_q ? scratch_.queries_along : queries_of(it), sums.keys);
}

void BackwardBlocks::make_diff_queries(const BackwardPair& it) {
    const AttentionBackwardPlan::Kernels& made = kernels(it);
    const AttentionStrides& strides = plan_.spec().diff_q;
    char* const result = head_.row_of(arrays_.diff_q, strides, it.head, it.queries.begin);
    if (!plan_.waits()) {
        run(*made.first_diff_queries, scratch_.diff_scores, scratch_.keys_along, result);
        return;
    }
    float* const waiting = scratch_.diff_queries + it.place * plan_.rows().results;
    run(it.keys.begin == 0 ? *made.first_diff_queries : *made.diff_queries, scratch_.diff_scores,
        scratch_.keys_along, waiting);
    if (it.keys.end < plan_.end_of_keys(it.queries)) return;
    RowArgs args;
    args.rows = it.queries.size();
    args.columns = spec_.head_size;
    args.operands[0] = {waiting, plan_.rows().results * kFloat};
    args.operands[1] = {result, strides.row * size_of(spec_.dtype)};
    plan_.storing()(args);
}

}  // namespace dlprim
