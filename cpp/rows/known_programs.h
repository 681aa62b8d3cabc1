// Kernels of row programs, found by what the programs are written from: to write one down again
// takes longer than all else that a shape needs which differs in no program. They live as long as
// the cache of row programs, or a user, keeps them.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "jit/cache.h"
#include "jit/isa.h"
#include "rows/row_kernel.h"

namespace dlprim {

template <class Key, class Hash>
class KnownPrograms {
public:
    // `write` returns the RowSpec.
    template <class Write>
    std::shared_ptr<const RowKernel> find(const Key& key, const Write& write) {
        const Isa isa = usable_isa();
        if (auto known = living(key, isa)) return known;
        std::shared_ptr<const RowKernel> made = row_kernel(write(), isa);
        const std::lock_guard lock(mutex_);
        if (known_.size() >= kMostKnown) {
            std::erase_if(known_, [](const auto& entry) { return entry.second.kernel.expired(); });
            if (known_.size() >= kMostKnown) known_.clear();
        }
        known_[key] = {made, isa};
        return made;
    }

    void before_fork() { mutex_.lock(); }
    void after_fork_in_parent() { mutex_.unlock(); }
    void after_fork_in_child() { mutex_.unlock(); }

private:
    static constexpr std::size_t kMostKnown = 4096;

    struct Known {
        std::weak_ptr<const RowKernel> kernel;
        Isa isa = Isa::scalar;
    };

    std::shared_ptr<const RowKernel> living(const Key& key, Isa isa) {
        const std::lock_guard lock(mutex_);
        const auto found = known_.find(key);
        return found == known_.end() || found->second.isa != isa ? nullptr
                                                                 : found->second.kernel.lock();
    }

    std::mutex mutex_;
    std::unordered_map<Key, Known, Hash> known_;
};

// Of the process.
template <class Key, class Hash, class Write>
std::shared_ptr<const RowKernel> known_program(const Key& key, const Write& write) {
    return one_of_process<KnownPrograms<Key, Hash>>().find(key, write);
}

}  // namespace dlprim
