// The public face of the row engine: a program goes in, a callable kernel comes out of the cache.
// A kernel is immutable, knows no extents, and may be called from any number of threads at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>

#include "jit/cache.h"
#include "jit/code.h"
#include "jit/isa.h"
#include "rows/row_args.h"
#include "rows/row_spec.h"

namespace dlprim {

class RowKernel {
public:
    // Generates the kernel. Prefer row_kernel(), which caches.
    RowKernel(RowSpec spec, Isa isa);

    // Runs the program on every row. The caller vouches for the memory behind `args`: every operand
    // that is read readable, every other one writable and overlapping no operand but one that it
    // lies on exactly.
    void operator()(const RowArgs& args) const;

    const RowSpec& spec() const { return spec_; }
    Isa isa() const { return isa_; }
    // Unique per program and ISA.
    std::string name() const;
    // Empty for scalar.
    std::span<const std::uint8_t> code() const { return code_.bytes(); }
    // Of code.
    std::int64_t bytes() const { return std::ssize(code()); }
    std::int64_t mapped_before() const { return code_.mapped_before(); }  // as Code has it

    // Vectors under way together.
    std::int32_t vectors() const { return vectors_; }

    // Of a call, about: what Pricing takes for it.
    double cycles(const RowArgs& args) const;

    // How much scratch a call needs.
    std::int64_t scratch_floats(std::int64_t columns) const;

private:
    using Function = void(const RowArgs*);

    RowSpec spec_;
    Isa isa_;
    int kept_rows_ = 0;
    std::int32_t vectors_ = 1;
    Code code_;
    Function* entry_ = nullptr;
};

// The cached kernel for `spec` on `isa`, generated on first use. Thread-safe.
// Throws std::invalid_argument when the spec is no program or `isa` exceeds usable_isa().
std::shared_ptr<const RowKernel> row_kernel(const RowSpec& spec, Isa isa = usable_isa());

// Kernels found by what their programs are written from: to write one down again takes longer than
// all else that a shape needs which differs in no program. They live as long as the cache, or a
// user, keeps them.
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

CacheInfo row_cache_info();
void row_cache_clear();

}  // namespace dlprim
