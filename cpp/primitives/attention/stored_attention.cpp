#include "primitives/attention/stored_attention.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <new>
#include <vector>

#include "primitives/attention/stored_attention_plan.h"
#include "primitives/attention/stored_attention_task.h"
#include "primitives/tensor/parallel.h"

namespace dlprim {
namespace {

// So many rows of one head are fewer than the products of whole blocks are quicker for.
constexpr std::int64_t kFewStoredQueries = 8;

// All chunks of all heads, on threads.
class StoredCall {
public:
    StoredCall(const StoredAttentionPlan& plan, const AttentionArrays& arrays, WorkspacePool& pool)
        : plan_(plan), spec_(plan.spec()), arrays_(arrays), pool_(pool) {
        for (std::int64_t sample = 0; sample < spec_.batch; ++sample) {
            most_ = std::max(most_, chunks_of(keys_of(sample)));
            seen_ += plan.seen(keys_of(sample)).size();
        }
    }

    void run() {
        const double share =
            static_cast<double>(seen_) / static_cast<double>(spec_.batch * spec_.keys);
        const WorkOf work(spec_.flops() * share, spec_.bytes() * share);
        const std::int64_t groups = plan_.groups() * blocks_;
        const std::int64_t counts = aligned(groups * std::int64_t{sizeof(std::atomic<int>)});
        const WorkspacePool::Lease lease(pool_, counts + groups * most_ * part_);
        left_ = reinterpret_cast<std::atomic<int>*>(lease.data());
        parts_ = lease.data() + counts;
        for (std::int64_t i = 0; i < groups; ++i) {
            new (left_ + i) std::atomic<int>(static_cast<int>(chunks_of(keys_of(sample_of(i)))));
        }
        parallel_ranges(groups * most_, num_threads(), [&](Range tasks, int) {
            const WorkspacePool::Lease own(pool_, StoredScratch(plan_, nullptr).bytes);
            const StoredScratch scratch(plan_, own.data());
            for (std::int64_t task = tasks.begin; task < tasks.end; ++task) {
                const StoredAttentionTask it = task_of(task / most_);
                if (task == tasks.begin || task % most_ == 0) it.take_queries(scratch.queries);
                attend(it, task / most_, task % most_, scratch);
            }
        });
    }

private:
    std::int64_t sample_of(std::int64_t group) const { return group / blocks_ / spec_.kv_heads; }
    std::int64_t keys_of(std::int64_t sample) const {
        if (!spec_.is_filled) return spec_.keys;
        return std::clamp<std::int64_t>(arrays_.fill[sample], 0, spec_.keys);
    }
    std::int64_t chunks_of(std::int64_t keys) const {
        return std::max<std::int64_t>(plan_.chunks(plan_.seen(keys)).count(), 1);
    }
    StoredAttentionTask task_of(std::int64_t group) const {
        const std::int64_t kv_head = group / blocks_ % spec_.kv_heads;
        return {plan_, arrays_, {sample_of(group), kv_head, plan_.rows().at(group % blocks_)}};
    }

    // Who computes the last chunk of a group makes its results.
    void attend(const StoredAttentionTask& it, std::int64_t group, std::int64_t i,
                const StoredScratch& scratch) {
        const std::int64_t keys = keys_of(sample_of(group)), count = chunks_of(keys);
        if (i >= count) return;
        const Range all = plan_.seen(keys), chunk = plan_.chunks(all).at(i);
        char* const parts = parts_ + group * most_ * part_;
        it.attend({all.begin + chunk.begin, all.begin + chunk.end}, keys, scratch,
                  StoredPartial(plan_, parts + i * part_));
        if (left_[group].fetch_sub(1, std::memory_order_acq_rel) > 1) return;
        std::vector<StoredPartial> made;
        for (std::int64_t c = 0; c < count; ++c) made.emplace_back(plan_, parts + c * part_);
        it.finish(made);
    }

    const StoredAttentionPlan& plan_;
    const AttentionSpec& spec_;
    const AttentionArrays& arrays_;
    WorkspacePool& pool_;
    std::int64_t most_ = 1;  // chunks of a group
    std::int64_t seen_ = 0;  // keys of all sequences
    std::int64_t blocks_ = plan_.rows().count();
    std::int64_t part_ = StoredPartial(plan_, nullptr).bytes;
    std::atomic<int>* left_ = nullptr;  // chunks of each group
    char* parts_ = nullptr;
};

}  // namespace

bool StoredAttention::serves(const AttentionSpec& spec) {
    if (spec.is_filled || spec.window > 0 || spec.stored_type() != spec.dtype) return true;
    return spec.queries <= kFewStoredQueries &&
           std::max(spec.head_size, spec.value_size) <= kMostStreamColumns;
}

StoredAttention::StoredAttention(const AttentionSpec& spec)
    : plan_(std::make_shared<const StoredAttentionPlan>(spec, usable_isa())) {}

void StoredAttention::forward(const AttentionArrays& arrays, WorkspacePool& pool) const {
    StoredCall(*plan_, arrays, pool).run();
}

}  // namespace dlprim
