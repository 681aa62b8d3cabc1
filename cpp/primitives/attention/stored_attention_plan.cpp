#include "primitives/attention/stored_attention_plan.h"

#include <algorithm>
#include <stdexcept>

#include "jit/machine.h"

namespace dlprim {
namespace {

// Of the keys of a chunk: they stay in the second cache where more rows meet them than go together.
constexpr std::int64_t kChunkBytes = 128 << 10;
constexpr std::int64_t kMostKeysOfChunk = 512;
constexpr std::int64_t kKeysUnit = 16;
// Of a task, whose scores stay in the second cache.
constexpr std::int64_t kRowsOfTask = 32;
constexpr float kPowersOfTwo = 0x1.715476p+0F;

bool multiplies_pairs(const AttentionSpec& spec, Isa isa) {
    return spec.dtype == DType::bf16 && streams_pairs(isa) && !machine_at(isa).pairs_are_slow;
}

std::int64_t longest_chunk(const AttentionSpec& spec) {
    const std::int64_t row = spec.head_size * size_of(spec.stored_type());
    return std::clamp(kChunkBytes / row / kKeysUnit * kKeysUnit, 4 * kKeysUnit, kMostKeysOfChunk);
}

}  // namespace

StoredAttentionPlan::StoredAttentionPlan(const AttentionSpec& spec, Isa isa)
    : spec_(spec),
      isa_(isa),
      rows_{spec.heads / spec.kv_heads * spec.queries, kRowsOfTask},
      together_(std::min<std::int64_t>(most_streamed(isa), rows_.extent)),
      most_chunk_(longest_chunk(spec)),
      score_pitch_(padded(most_chunk_, DType::f32)),
      sums_{.way = StreamSpec::Way::along,
            .matrix = spec.stored_type(),
            .vectors = multiplies_pairs(spec, isa) ? DType::bf16 : DType::f32,
            .columns = spec.head_size,
            .distance = score_pitch_} {
    if (std::max(spec.head_size, spec.value_size) > kMostStreamColumns) {
        throw std::invalid_argument(
            "heads have more than 1,024 elements, expected no more where keys are as stored");
    }
    make_kernels();
    make_programs();
}

Range StoredAttentionPlan::seen(std::int64_t keys) const {
    if (!spec_.causal) return {0, keys};
    const std::int64_t before = past(keys);
    const std::int64_t end = std::clamp<std::int64_t>(before + spec_.queries, 0, keys);
    const std::int64_t first = spec_.window == 0 ? 0 : before - spec_.window + 1;
    return {std::clamp<std::int64_t>(first, 0, end), end};
}

Blocks StoredAttentionPlan::chunks(const Range& seen) const {
    const std::int64_t block = equal_step(seen.size(), most_chunk_, kKeysUnit);
    return {seen.size(), std::max<std::int64_t>(block, 1)};
}

void StoredAttentionPlan::make_kernels() {
    const auto make = [&](std::int64_t rows) {
        Kernels& made = kernels_.at(static_cast<std::size_t>(rows));
        StreamSpec spec = sums_;
        spec.count = static_cast<int>(rows);
        made.sums = stream_kernel(spec, isa_);
        spec.way = StreamSpec::Way::across;
        spec.vectors = DType::f32;
        spec.columns = spec_.value_size;
        made.values = stream_kernel(spec, isa_);
    };
    make(together_);
    const std::int64_t rest = rows_.extent % rows_.block % together_;
    if (rest > 0) make(rest);
}

void StoredAttentionPlan::make_programs() {
    ScoresSpec scores{.mask = spec_.mask_type, .softcap = spec_.softcap};
    factor_ = score_factor(scores, spec_.scale);
    const bool adds_mask = spec_.mask_type && *spec_.mask_type != DType::u8;
    exponent_of_score_ = adds_mask ? kPowersOfTwo : 1;
    for (const bool hides : {false, true}) {
        if (hides && !spec_.causal) continue;
        scores.hides_later = hides;
        programs_.at(hides ? 1 : 0) = {highest_kernel(scores), powers_kernel(scores, DType::f32)};
    }
    dividing_ = dividing_kernel(spec_.dtype);
}

}  // namespace dlprim
