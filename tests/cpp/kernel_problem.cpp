#include "kernel_problem.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "brgemm/reference.h"

namespace dlprim::testing {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kUntouched = 12345;
constexpr std::array kLevels = {Isa::scalar, Isa::avx2, Isa::avx512};

// Random integers in the matrix, `gap` between its rows.
void fill(float* data, std::int64_t rows, std::int64_t columns, std::int64_t ld, float gap,
          std::minstd_rand& random) {
    for (std::int64_t row = 0; row < rows; ++row) {
        float* const start = data + row * ld;
        for (std::int64_t i = 0; i < columns; ++i) {
            start[i] = static_cast<float>(static_cast<int>(random() >> 8) % 9 - 4);
        }
        if (row + 1 < rows) std::fill(start + columns, start + ld, gap);
    }
}

bool same(float left, float right) {
    return left == right || (std::isnan(left) && std::isnan(right));
}

}  // namespace

KernelProblem::KernelProblem(const BrgemmSpec& spec, std::int64_t batch, Fence fence,
                             std::uint32_t seed)
    : spec_(validated(spec)),
      batch_(batch),
      fence_(fence),
      a_(make_operand(spec_.trans_a ? spec_.k : spec_.m, spec_.a_columns(), spec_.lda, fence,
                      seed)),
      b_(make_operand(spec_.k, spec_.n, spec_.ldb, fence, seed + 1)),
      bias_(spec_.n, fence),
      before_(static_cast<std::size_t>(span_c(spec_)) / sizeof(float)) {
    std::minstd_rand random(seed + 2);
    fill(bias_.data(), 1, spec_.n, spec_.n, kNaN, random);
    bias_.make_read_only();
    fill(before_.data(), spec_.m, spec_.n, spec_.ldc, kUntouched, random);
    if (spec_.beta == 0) {
        std::replace_if(
            before_.begin(), before_.end(), [](float c) { return c != kUntouched; }, kNaN);
    }
    expected_ = before_;
    reference_brgemm(spec_, args(expected_.data()));
}

KernelProblem::Operand KernelProblem::make_operand(std::int64_t rows, std::int64_t columns,
                                                   std::int64_t ld, Fence fence,
                                                   std::uint32_t seed) const {
    const std::int64_t span = (rows - 1) * ld + columns;
    Operand operand;
    operand.stride = span * std::int64_t{sizeof(float)};
    // Matrices at a constant stride lie end to end; otherwise each has fences of its own.
    const bool together = spec_.addressing == Addressing::stride;
    for (std::int64_t i = 0; i < (together ? std::min<std::int64_t>(batch_, 1) : batch_); ++i) {
        operand.memory.emplace_back(together ? batch_ * span : span, fence);
    }
    std::minstd_rand random(seed);
    for (std::int64_t i = 0; i < batch_; ++i) {
        const auto block = static_cast<std::size_t>(together ? 0 : i);
        float* const matrix = operand.memory[block].data() + (together ? i * span : 0);
        fill(matrix, rows, columns, ld, kNaN, random);
        operand.addresses.push_back(matrix);
        operand.offsets.push_back(reinterpret_cast<const std::byte*>(matrix) -
                                  reinterpret_cast<const std::byte*>(operand.addresses[0]));
    }
    for (GuardedMemory& memory : operand.memory) memory.make_read_only();
    return operand;
}

const void* KernelProblem::base(const Operand& operand) const {
    if (batch_ == 0) return nullptr;
    if (spec_.addressing == Addressing::address) return operand.addresses.data();
    return operand.addresses[0];
}

BrgemmArgs KernelProblem::args(float* c) const {
    return {.a = base(a_),
            .b = base(b_),
            .c = c,
            .batch = batch_,
            .stride_a = a_.stride,
            .stride_b = b_.stride,
            .offsets_a = a_.offsets.data(),
            .offsets_b = b_.offsets.data(),
            .bias = spec_.epilogue.bias ? bias_.data() : nullptr};
}

std::string KernelProblem::mismatch(const Brgemm& kernel) const {
    const GuardedMemory c(static_cast<std::int64_t>(before_.size()), fence_);
    std::copy(before_.begin(), before_.end(), c.data());
    kernel(args(c.data()));
    for (std::size_t i = 0; i < expected_.size(); ++i) {
        if (same(c.data()[i], expected_[i])) continue;
        const auto at = static_cast<std::int64_t>(i);
        return "C[" + std::to_string(at / spec_.ldc) + ", " + std::to_string(at % spec_.ldc) +
               "] is " + std::to_string(c.data()[i]) + ", expected " +
               std::to_string(expected_[i]) + " with batch " + std::to_string(batch_) + " in " +
               to_string(kernel.plan());
    }
    return "";
}

std::vector<Brgemm> all_kernels(const BrgemmSpec& spec) {
    const BrgemmSpec request = validated(spec);
    std::vector<Brgemm> kernels;
    for (const Isa isa : kLevels) {
        if (isa > usable_isa()) continue;
        for (const bool shuffles : {false, true}) {
            if (isa == Isa::scalar && shuffles) continue;
            kernels.emplace_back(
                make_plan(request, isa, {.shuffles_beat_broadcast_loads = shuffles}));
        }
    }
    return kernels;
}

std::string skipped_levels() {
    std::string skipped;
    for (const Isa isa : kLevels) {
        if (isa > usable_isa()) skipped += " " + std::string(name_of(isa));
    }
    return skipped;
}

}  // namespace dlprim::testing
