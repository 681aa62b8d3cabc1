// Products of a few rows with panels of weights, as machine code: a spec is the key, a kernel comes
// from the cache, is immutable and may be called from any number of threads at once. Beside it the
// kernel that makes records of rows.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "jit/cache.h"
#include "jit/code.h"
#include "jit/isa.h"
#include "panels/panel_plan.h"

namespace dlprim {

// What generated code reads.
struct PanelArgs {
    const char* weights = nullptr;  // a panel
    const char* records = nullptr;  // of the rows, one behind the other, then of the next group
    float* sums = nullptr;          // room for 64 of each row
    const float* bias = nullptr;    // of the first column
    char* dst = nullptr;            // likewise
    std::int64_t dst_row = 0;       // bytes from row to row
    std::int64_t groups = 0;
};

class PanelKernel {
public:
    // Generates the kernel. Prefer panel_kernel(), which caches.
    PanelKernel(const PanelSpec& spec, Isa isa);

    void operator()(const PanelArgs& args) const;

    // Unique per spec and ISA.
    std::string name() const;
    // Empty for scalar.
    std::span<const std::uint8_t> code() const { return code_.bytes(); }
    std::int64_t bytes() const { return std::ssize(code()); }
    std::int64_t mapped_before() const { return code_.mapped_before(); }  // as Code has it

private:
    using Function = void(const PanelArgs*);

    PanelPlan plan_;
    Code code_;
    Function* entry_ = nullptr;
};

// The cached kernel for `spec` on `isa`, which is at most usable_isa().
std::shared_ptr<const PanelKernel> panel_kernel(const PanelSpec& spec, Isa isa);

// Records of one row.
struct RecordSpec {
    RowRecord record = {};
    DType src = DType::f32;  // or bfloat16
    // Of the weights; what the sum of the row is multiplied with, and 1 where columns have their
    // own.
    std::uint8_t zero = 8;

    friend bool operator==(const RecordSpec&, const RecordSpec&) = default;
};

RecordSpec record_spec(const PanelFormat& format, int x_bits, DType src, Isa isa);

struct RecordArgs {
    const char* src = nullptr;
    char* records = nullptr;
    std::int64_t record_step = 0;  // bytes from one group's to the next one's
    std::int64_t groups = 1;       // whole ones; at least one
};

class RecordKernel {
public:
    // Generates the kernel. Prefer record_kernel(), which caches.
    RecordKernel(const RecordSpec& spec, Isa isa);

    void operator()(const RecordArgs& args) const;

    std::string name() const;
    std::span<const std::uint8_t> code() const { return code_.bytes(); }
    std::int64_t bytes() const { return std::ssize(code()); }
    std::int64_t mapped_before() const { return code_.mapped_before(); }

private:
    using Function = void(const RecordArgs*);

    RecordSpec spec_;
    Isa isa_;
    Code code_;
    Function* entry_ = nullptr;
};

std::shared_ptr<const RecordKernel> record_kernel(const RecordSpec& spec, Isa isa);

// Of both kinds.
CacheInfo panel_cache_info();
void panel_cache_clear();

}  // namespace dlprim
