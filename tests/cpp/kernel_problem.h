// One call of a kernel with everything around it that makes a wrong access or a wrong sum show:
// operands between pages that fault, NaN in every gap between rows, A and B read-only, C poisoned
// where it must not be read. The values are small integers, so every order of summation gives the
// same float32 sum and results are compared for equality.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "brgemm/args.h"
#include "brgemm/brgemm.h"
#include "brgemm/spec.h"
#include "guarded_memory.h"

namespace dlprim::testing {

class KernelProblem {
public:
    // The expected C is computed here, with the scalar reference.
    KernelProblem(const BrgemmSpec& spec, std::int64_t batch, Fence fence, std::uint32_t seed);

    // Empty when the kernel computes the expected C and touches nothing else; otherwise what is
    // wrong, with the kernel's plan.
    std::string mismatch(const Brgemm& kernel) const;

    const BrgemmSpec& spec() const { return spec_; }

private:
    // The matrices of one operand and how BrgemmArgs leads to them.
    struct Operand {
        std::vector<GuardedMemory> memory;
        std::vector<const float*> addresses;
        std::vector<std::int64_t> offsets;
        std::int64_t stride = 0;
    };

    Operand make_operand(std::int64_t rows, std::int64_t columns, std::int64_t ld, Fence fence,
                         std::uint32_t seed) const;
    const void* base(const Operand& operand) const;
    BrgemmArgs args(float* c) const;

    BrgemmSpec spec_;
    std::int64_t batch_;
    Fence fence_;
    Operand a_;
    Operand b_;
    GuardedMemory bias_;
    std::vector<float> before_;
    std::vector<float> expected_;
};

// The kernels for `spec` that this machine can run: every ISA level for which kernels differ up
// to usable_isa(), each as it would be planned for every microarchitecture.
std::vector<Brgemm> all_kernels(const BrgemmSpec& spec);

// The levels above usable_isa() that all_kernels leaves out, for a printed note.
std::string skipped_levels();

}  // namespace dlprim::testing
