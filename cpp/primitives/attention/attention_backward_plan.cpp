#include "primitives/attention/attention_backward_plan.h"

#include <algorithm>

#include "primitives/attention/attention_plan.h"

namespace dlprim {
namespace {

constexpr std::int64_t kBackwardQueries = 64;
// Up to so many in one block, although it leaves the second cache: two products more for each of
// several blocks take longer.
constexpr std::int64_t kBackwardKeys = 2048;
constexpr std::int64_t kTileUnit = 16;  // tiles of AMX have as many rows and columns
// So many tasks in all are enough for any number of threads.
constexpr std::int64_t kBackwardTasks = 16;

}  // namespace

AttentionBackwardPlan::AttentionBackwardPlan(const AttentionBackwardSpec& spec)
    : spec_(spec),
      queries_{spec.forward.queries, equal_step(spec.forward.queries, kBackwardQueries, 1)},
      keys_{spec.forward.keys, equal_step(spec.forward.keys, kBackwardKeys, kTileUnit)} {
    const AttentionSpec& it = spec_.forward;
    if (queries_.count() > 1) queries_.block = rounded_up(queries_.block, 4);
    chunks_ = std::min(blocks_of_group(), (kBackwardTasks + groups() - 1) / groups());
    rows_ = {.across = padded(keys_.block, DType::f32),
             .heads = padded(it.head_size, DType::f32),
             .values = padded(it.value_size, DType::f32),
             .scores = padded(keys_.block, DType::f32),
             .weights = padded(keys_.block, it.dtype),
             .results = rounded_up(it.head_size, kTileUnit),
             .sums = value_sums() + padded(it.value_size, DType::f32)};
    make_kernels();
    make_programs();
    if (it.causal) later_ = LaterKeys(queries_.block, keys_.block, it.past);
}

std::int64_t AttentionBackwardPlan::end_of_keys(const Range& queries) const {
    const AttentionSpec& it = spec_.forward;
    return it.causal ? std::min(it.keys, queries.end + it.past) : it.keys;
}

std::int64_t AttentionBackwardPlan::parts_of_group(int threads) const {
    return std::min(even_parts(groups(), threads), chunks_);
}

AttentionBackwardPlan::Kernels AttentionBackwardPlan::made_for(std::int64_t queries,
                                                               std::int64_t keys) const {
    const AttentionSpec& it = spec_.forward;
    Kernels made;
    BrgemmSpec scores{.m = queries,
                      .n = keys,
                      .k = it.head_size,
                      .lda = packs_first(fetches_keys()) ? rows_.heads : it.q.row,
                      .ldb = rows_.across,
                      .ldc = rows_.scores,
                      .a_type = it.dtype,
                      .b_type = it.dtype,
                      .prefetch_a = fetches_keys()};
    made.scores = brgemm(scores);
    scores.k = it.value_size;
    scores.lda = packs_first(fetches_values()) ? rows_.values : it.out.row;
    scores.prefetch_a = fetches_values();
    made.diff_weights = brgemm(scores);
    make_sums(made, queries, keys);
    BrgemmSpec results{.m = queries,
                       .n = it.head_size,
                       .k = keys,
                       .lda = rows_.weights,
                       .ldb = rows_.heads,
                       .ldc = waits() ? rows_.results : spec_.diff_q.row,
                       .a_type = it.dtype,
                       .b_type = it.dtype,
                       .c_type = waits() ? DType::f32 : it.dtype,
                       .prefetch_c = !waits()};
    made.first_diff_queries = brgemm(results);
    results.beta = 1;
    if (waits()) made.diff_queries = brgemm(results);
    return made;
}

// Queries that come first see all keys, or sums are cleared before.
void AttentionBackwardPlan::make_sums(Kernels& made, std::int64_t queries,
                                      std::int64_t keys) const {
    const AttentionSpec& it = spec_.forward;
    BrgemmSpec sums{.m = keys,
                    .k = queries,
                    .lda = is_single() ? rows_.weights : rows_.across,
                    .a_type = it.dtype,
                    .b_type = it.dtype,
                    .trans_a = true};
    for (const int beta : {0, 1}) {
        if (beta == 0 ? it.causal : !it.causal && blocks_of_group() == chunks_) continue;
        sums.beta = beta;
        sums.prefetch_c = beta == 0 && sums_in_place();
        sums.n = it.value_size;
        sums.ldb = packs_second(fetches_values()) ? rows_.values : it.out.row;
        sums.ldc = row_of_value_sums();
        (beta == 0 ? made.first_diff_values : made.diff_values) = brgemm(sums);
        sums.n = it.head_size;
        sums.ldb = packs_second(fetches_keys()) ? rows_.heads : it.q.row;
        sums.ldc = row_of_key_sums();
        (beta == 0 ? made.first_diff_keys : made.diff_keys) = brgemm(sums);
    }
}

void AttentionBackwardPlan::make_kernels() {
    const auto make = [&](std::int64_t queries, std::int64_t keys) {
        Kernels& made = kernels_[{queries, keys}];
        if (made.scores == nullptr) made = made_for(queries, keys);
    };
    for (std::int64_t i = 0; i < queries_.count(); ++i) {
        const Range queries = queries_.at(i);
        const std::int64_t end = end_of_keys(queries);
        const std::int64_t last = (end - 1) / keys_.block;
        if (last > 0) make(queries.size(), keys_.block);
        make(queries.size(), end - last * keys_.block);
        // All but the last are as the first.
        if (!spec_.forward.causal) i = std::max(i, queries_.count() - 2);
    }
}

void AttentionBackwardPlan::make_programs() {
    const AttentionSpec& it = spec_.forward;
    for (const bool hides : {false, true}) {
        if (hides && !it.causal) continue;
        ScoresSpec scores{.mask = it.mask_type, .hides_later = hides, .softcap = it.softcap};
        differentiating_.at(hides ? 1 : 0) = differentiating_kernel(scores, it.dtype);
        for (const bool is_first : {false, true}) {
            if (!is_first && !waits()) continue;
            scores.is_first = is_first;
            programs_.at(is_first ? 1 : 0).at(hides ? 1 : 0) = {highest_kernel(scores),
                                                                sums_kernel(scores)};
        }
    }
    factor_ = score_factor({.mask = it.mask_type, .softcap = it.softcap}, it.scale);
    adding_ = adding_kernel(DType::f32);
    adding_last_ = adding_kernel(it.dtype);
    storing_ = storing_kernel(it.dtype);
}

std::int64_t AttentionBackwardPlan::scratch_floats() const {
    std::int64_t most = 0;
    const auto count = [&](const auto& program) {
        if (program != nullptr) most = std::max(most, program->scratch_floats(keys_.block));
    };
    for (const auto& programs : programs_) {
        for (const auto& it : programs) {
            count(it.highest);
            count(it.sums);
        }
    }
    std::for_each(differentiating_.begin(), differentiating_.end(), count);
    return most;
}

}  // namespace dlprim
