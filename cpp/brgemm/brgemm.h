// The public face of the kernel library: a spec goes in, a callable kernel comes out of the cache.
// A kernel is immutable and may be called from any number of threads at once.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "brgemm/args.h"
#include "brgemm/plan.h"
#include "brgemm/spec.h"
#include "jit/cache.h"
#include "jit/code.h"
#include "jit/isa.h"

namespace dlprim {

// The plan whose code serves all kernels that differ in how often their loops go round: a stream of
// heights, widths and depths needs a few. Loops read their counts when the code is called, and m, n
// and k are the least that make it. What depends on a count otherwise stays as it is.
BrgemmPlan shared_plan(BrgemmPlan plan);

// What code for the shared plan reads: the count of every column group, in front of that of each of
// its row groups with the turns of that one's loop along k.
inline constexpr std::size_t kMostCounts = 15;
using LoopCounts = std::array<std::int64_t, kMostCounts>;

LoopCounts loop_counts(const BrgemmPlan& plan);

// Code of a shared plan.
struct BrgemmCode {
    Code code;

    std::int64_t bytes() const { return std::ssize(code.bytes()); }
    std::int64_t mapped_before() const { return code.mapped_before(); }  // as Code has it
};

class Brgemm {
public:
    // With code that is generated unless a kernel of the same shared plan lives. Prefer brgemm(),
    // which caches.
    explicit Brgemm(BrgemmPlan plan);

    // C = epilogue(beta*C + sum_i A_i * B_i). The caller vouches for the memory behind `args`:
    // every A_i, B_i, C and bias region readable, C writable and overlapping no operand.
    void operator()(const BrgemmArgs& args) const;

    const BrgemmSpec& spec() const { return plan_.spec; }
    const BrgemmPlan& plan() const { return plan_; }
    Isa isa() const { return plan_.isa; }
    std::string name() const;                    // unique per spec and ISA
    std::span<const std::uint8_t> code() const;  // empty for scalar
    std::int64_t bytes() const { return std::ssize(code()); }
    std::int64_t mapped_before() const { return code_ ? code_->mapped_before() : 0; }
    double flops(std::int64_t batch) const;  // 2*m*n*k*batch
    // Of a call whose B comes from the L2 cache, about: what Pricing takes for it.
    double cycles(std::int64_t batch) const;

private:
    using Function = void(const BrgemmArgs*, const std::int64_t* counts);

    BrgemmPlan plan_;
    LoopCounts counts_;
    std::shared_ptr<const BrgemmCode> code_;  // null for scalar
    Function* entry_ = nullptr;
};

// The cached kernel for `spec` on `isa`, generated on first use. Thread-safe.
// Throws std::invalid_argument when the spec is out of range or `isa` exceeds usable_isa().
std::shared_ptr<const Brgemm> brgemm(const BrgemmSpec& spec, Isa isa);
std::shared_ptr<const Brgemm> brgemm(const BrgemmSpec& spec);

CacheInfo kernel_cache_info();
// What kernels run: a miss for each that was generated.
CacheInfo kernel_code_info();
void kernel_cache_clear();

}  // namespace dlprim

template <>
struct std::hash<dlprim::BrgemmPlan> {
    std::size_t operator()(const dlprim::BrgemmPlan& plan) const noexcept;
};
