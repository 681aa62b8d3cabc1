#include "primitives/attention/attention_plan.h"

#include <algorithm>
#include <numeric>

namespace dlprim {
namespace {

constexpr std::int64_t kQueries = 64;
constexpr std::int64_t kKeys = 512;
// So many tasks for each thread need no more to be even.
constexpr std::int64_t kManyTasks = 8;
// Of the second cache, for results that wait for further keys.
constexpr double kWaiting = 0.25;
// Rows with a place for each key are as long for up to so many more of them, so that sequences of
// many lengths share kernels.
constexpr std::int64_t kKeysAlike = 64;

}  // namespace

std::int64_t even_parts(std::int64_t groups, int threads) {
    if (groups >= kManyTasks * threads) return 1;
    return threads / std::gcd(groups, std::int64_t{threads});
}

AttentionPlan::AttentionPlan(const AttentionSpec& spec, const Machine& machine)
    : spec_(spec),
      l2_(machine.l2),
      lanes_(static_cast<std::int64_t>(machine.vector_lanes())),
      queries_{spec.queries, equal_step(spec.queries, kQueries, 1)},
      keys_{spec.keys, equal_step(spec.keys, kKeys, kRowUnit)} {
    if (queries_.count() > 1) queries_.block = rounded_up(queries_.block, 4);
    const std::int64_t keys = rounded_up(keys_.block, kKeysAlike);
    rows_ = {.keys = padded(keys, DType::f32),
             .values = spec.dtype == DType::f32 ? padded(spec.value_size, DType::f32)
                                                : rounded_up(spec.value_size, kRowUnit),
             .scores = padded(keys, DType::f32),
             .powers = padded(keys, spec.dtype),
             .results = sums_in_place() ? spec.out.row : rounded_up(spec.value_size, kRowUnit)};
    make_kernels();
    make_programs();
    if (spec.causal) later_ = LaterKeys(queries_.block, keys_.block, spec.past);
}

std::int64_t AttentionPlan::end_of_keys(const Range& queries) const {
    return spec_.causal ? std::min(spec_.keys, queries.end + spec_.past) : spec_.keys;
}

std::int64_t AttentionPlan::parts_of_group(int threads) const {
    std::int64_t parts = even_parts(groups(), threads);
    if (keys_.count() > 1) {
        const double block =
            static_cast<double>(queries_.block * spec_.value_size * size_of(DType::f32));
        const auto together =
            std::max<std::int64_t>(static_cast<std::int64_t>(kWaiting * l2_ / block), 1);
        parts = std::max(parts, (blocks_of_group() + together - 1) / together);
    }
    return std::min(parts, blocks_of_group());
}

void AttentionPlan::make_kernels() {
    const auto make = [&](std::int64_t m, std::int64_t keys) {
        Kernels& made = kernels_[{m, keys}];
        if (made.first_values != nullptr) return;
        const DType type = spec_.dtype;
        const Blocks parts = halves(keys);
        for (std::int64_t i = 0; i < parts.count(); ++i) {
            const Range part = parts.at(i);
            const std::int64_t end = part.end == keys ? whole_keys(keys) : part.end;
            made.scores.at(static_cast<std::size_t>(i)) = brgemm({.m = m,
                                                                  .n = end - part.begin,
                                                                  .k = spec_.head_size,
                                                                  .lda = spec_.q.row,
                                                                  .ldb = rows_.keys,
                                                                  .ldc = rows_.scores,
                                                                  .a_type = type,
                                                                  .b_type = type,
                                                                  .prefetch_a = fetches_next()});
        }
        BrgemmSpec values{.m = m,
                          .n = spec_.value_size,
                          .k = whole_values(keys),
                          .lda = rows_.powers,
                          .ldb = rows_.values,
                          .ldc = rows_.results,
                          .a_type = type,
                          .b_type = type};
        values.prefetch_c = sums_in_place();
        made.first_values = brgemm(values);
        values.beta = 1;
        if (keys_.count() > 1) made.values = brgemm(values);
    };
    for (std::int64_t i = 0; i < queries_.count(); ++i) {
        const Range queries = queries_.at(i);
        const std::int64_t end = end_of_keys(queries);
        const std::int64_t last = (end - 1) / keys_.block;
        if (last > 0) make(queries.size(), keys_.block);
        make(queries.size(), end - last * keys_.block);
        // All but the last are as the first.
        if (!spec_.causal) i = std::max(i, queries_.count() - 2);
    }
}

void AttentionPlan::make_programs() {
    for (const bool is_first : {false, true}) {
        for (const bool hides : {false, true}) {
            if ((hides && !spec_.causal) || (!is_first && keys_.count() == 1)) continue;
            const ScoresSpec scores{.mask = spec_.mask_type,
                                    .hides_later = hides,
                                    .is_first = is_first,
                                    .softcap = spec_.softcap};
            programs_.at(is_first ? 1 : 0).at(hides ? 1 : 0) = {highest_kernel(scores),
                                                                powers_kernel(scores, spec_.dtype)};
        }
    }
    factor_ = score_factor({.mask = spec_.mask_type, .softcap = spec_.softcap}, spec_.scale);
    shrinking_ = shrinking_kernel();
    dividing_ = dividing_kernel(spec_.dtype);
}

std::int64_t AttentionPlan::scratch_floats() const {
    return programs(true, false).powers->scratch_floats(keys_.block);
}

}  // namespace dlprim
