// The public face of the row engine: a program goes in, a callable kernel comes out of the cache.
// A kernel is immutable, knows no extents, and may be called from any number of threads at once.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

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

    // Of a call, about: what Pricing takes for it.
    double cycles(const RowArgs& args) const;

    // How much scratch a call needs.
    std::int64_t scratch_floats(std::int64_t columns) const;

private:
    using Function = void(const RowArgs*);

    RowSpec spec_;
    Isa isa_;
    int kept_rows_ = 0;
    Code code_;
    Function* entry_ = nullptr;
};

// The cached kernel for `spec` on `isa`, generated on first use. Thread-safe.
// Throws std::invalid_argument when the spec is no program or `isa` exceeds usable_isa().
std::shared_ptr<const RowKernel> row_kernel(const RowSpec& spec, Isa isa = usable_isa());

CacheInfo row_cache_info();
void row_cache_clear();

}  // namespace dlprim
