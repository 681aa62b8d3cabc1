#include <cstdint>
#include <set>

#include <doctest/doctest.h>

#include "primitives/attention/attention_backward_plan.h"

namespace dlprim {
namespace {

AttentionBackwardSpec spec_of(std::int64_t heads, std::int64_t kv_heads, std::int64_t queries,
                              std::int64_t keys) {
    constexpr std::int64_t kSize = 24, kValues = 40;
    AttentionSpec forward{.batch = 2,
                          .heads = heads,
                          .kv_heads = kv_heads,
                          .queries = queries,
                          .keys = keys,
                          .head_size = kSize,
                          .value_size = kValues};
    forward.q = {heads * queries * kSize, queries * kSize, kSize};
    forward.k = {kv_heads * keys * kSize, keys * kSize, kSize};
    forward.v = {kv_heads * keys * kValues, keys * kValues, kValues};
    forward.out = {heads * queries * kValues, queries * kValues, kValues};
    return {.forward = forward, .diff_q = forward.q, .diff_k = forward.k, .diff_v = forward.v};
}

TEST_CASE("all queries and keys that see each other have kernels, whatever the lengths") {
    for (const std::int64_t queries : {1, 3, 64, 65, 200, 700}) {
        for (const std::int64_t keys : {1, 16, 130, 513, 2049, 4500}) {
            for (const bool causal : {false, true}) {
                AttentionBackwardSpec spec = spec_of(2, 2, queries, keys);
                spec.forward.causal = causal;
                spec.forward.past = causal ? 5 : 0;
                const AttentionBackwardPlan plan(spec);
                std::int64_t seen = 0;
                for (std::int64_t i = 0; i < plan.queries().count(); ++i) {
                    const Range block = plan.queries().at(i);
                    for (std::int64_t j = 0; j < plan.keys().count(); ++j) {
                        const Range range = plan.keys().at(j);
                        const std::int64_t end = std::min(range.end, plan.end_of_keys(block));
                        if (end <= range.begin) continue;
                        const auto& kernels = plan.kernels(block.size(), end - range.begin);
                        CHECK(kernels.scores != nullptr);
                        CHECK((kernels.diff_queries != nullptr) == plan.waits());
                        seen += block.size() * (end - range.begin);
                    }
                }
                if (!causal) CHECK(seen == queries * keys);
            }
        }
    }
}

TEST_CASE("every block of queries is in one chunk, and threads share chunks of a head alone") {
    for (const std::int64_t kv_heads : {1, 2, 5, 20}) {
        for (const std::int64_t queries : {1, 100, 1000, 5000}) {
            const AttentionBackwardPlan plan(spec_of(4 * kv_heads, kv_heads, queries, 32));
            CHECK(plan.blocks_of_group() == 4 * plan.queries().count());
            CHECK(plan.chunks() >= 1);
            CHECK(plan.chunks() <= plan.blocks_of_group());
            std::set<std::int64_t> blocks;
            for (std::int64_t i = 0; i < plan.chunks(); ++i) {
                const Range chunk_of = chunk(plan.blocks_of_group(), plan.chunks(), i);
                CHECK(chunk_of.size() > 0);
                for (auto j = chunk_of.begin; j < chunk_of.end; ++j) CHECK(blocks.insert(j).second);
            }
            CHECK(static_cast<std::int64_t>(blocks.size()) == plan.blocks_of_group());
            CHECK(plan.parts_of_group(1) == 1);
            for (const int threads : {2, 3, 8, 64}) {
                CHECK(plan.parts_of_group(threads) <= plan.chunks());
            }
        }
    }
}

}  // namespace
}  // namespace dlprim
