// One call of a kernel of any types and epilogue, with everything around it that makes a wrong
// access or value show: operands between pages that fault, NaN (or anything) where nothing may be
// used, C poisoned where it must not be read. Two kinds of values: eighths, for which every float32
// sum is exact and results must be equal, and positive reals with full mantissas, for which the
// relative error of the sum is bounded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "brgemm/args.h"
#include "brgemm/brgemm.h"
#include "brgemm/spec.h"
#include "guarded_memory.h"

namespace dlprim::testing {

enum class Values : std::uint8_t { eighths, reals };

// Guarded memory of any number of bytes, flush with its fence.
class GuardedBytes {
public:
    GuardedBytes(std::int64_t bytes, Fence fence);

    std::byte* data() const { return data_; }
    std::int64_t size() const { return size_; }

private:
    GuardedMemory memory_;
    std::int64_t size_;
    std::byte* data_;
};

class TypedProblem {
public:
    // The expected C and relu mask are computed here, with the scalar reference.
    TypedProblem(const BrgemmSpec& spec, std::int64_t batch, Fence fence, Values values,
                 std::uint64_t seed);

    // Empty when the kernel computes what is expected and touches nothing else.
    std::string mismatch(const Brgemm& kernel) const;

    // Where prefetches lead, empty without them: inside the operands, just beyond, or anywhere.
    std::string ahead() const;

private:
    struct Operand {
        std::vector<GuardedBytes> memory;
        std::vector<const void*> addresses;
        std::vector<std::int64_t> offsets;
        std::int64_t stride = 0;
    };

    Operand make_operand(DType dtype, std::int64_t span, std::int64_t packed_columns,
                         std::int64_t ld);
    std::int64_t drawn_ahead(std::int64_t span);
    std::int64_t c_bytes() const;
    void fill(DType dtype, std::byte* data, std::int64_t bytes);
    void spoil_padding(DType dtype, std::byte* matrix, std::int64_t columns, std::int64_t ld);
    const void* base(const Operand& operand) const;
    BrgemmArgs args(std::byte* c, std::byte* mask) const;
    bool close(std::int64_t index, const std::byte* actual) const;

    std::mt19937_64 random_;
    BrgemmSpec spec_;
    std::int64_t batch_;
    Fence fence_;
    Values values_;
    Operand a_;
    Operand b_;
    GuardedBytes int_bias_;
    GuardedBytes scale_;
    GuardedBytes bias_;
    GuardedBytes residual_;
    std::int32_t zero_point_a_ = 0;
    std::int32_t zero_point_b_ = 0;
    std::int32_t zero_point_c_ = 0;
    std::int64_t a_ahead_ = 0;
    std::int64_t b_ahead_ = 0;
    std::int64_t gap_stride_ = 0;
    std::vector<std::byte> before_;
    std::vector<std::byte> expected_;
    std::vector<std::byte> mask_before_;
    std::vector<std::byte> mask_expected_;
};

}  // namespace dlprim::testing
