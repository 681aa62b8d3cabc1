#include "brgemm/peak.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>

#include "brgemm/code.h"
#include "brgemm/vector_assembler.h"

namespace dlprim {
namespace {

constexpr std::size_t kMostCodeBytes = 1 << 14;
constexpr int kChains = 12;  // more than latency times throughput of any FMA unit today
constexpr int kFmasPerLoop = 96;
constexpr int kLoadsPerLoop = 32;
constexpr int kStretches = 10;

using Loop = void(std::int64_t iterations, const void* memory);

class LoopEmitter : private VectorAssembler {
public:
    LoopEmitter(Isa isa, void* buffer) : VectorAssembler(isa, buffer, kMostCodeBytes) {}

    Code fmas() {
        Xbyak::Label next;
        for (int i = 0; i < kChains + 2; ++i) zero(i);
        L(next);
        for (int i = 0; i < kFmasPerLoop; ++i) fma(2 + i % kChains, 0, 1);
        return finish(next);
    }

    Code loads() {
        Xbyak::Label next;
        L(next);
        for (int i = 0; i < kLoadsPerLoop; ++i) load(i % 8, rsi + i * vector_bytes(), false);
        add(rsi, kLoadsPerLoop * vector_bytes());
        return finish(next);
    }

private:
    Code finish(const Xbyak::Label& next) {
        dec(rdi);
        jnz(next, T_NEAR);
        vzeroupper();
        ret();
        return Code({getCode(), getSize()});
    }
};

void require_vectors(Isa isa) {
    if (isa == Isa::scalar || isa > usable_isa()) {
        throw std::invalid_argument("isa='" + std::string(name_of(isa)) +
                                    "', expected avx2 or higher and at most '" +
                                    std::string(name_of(usable_isa())) + "'");
    }
}

double seconds_of(const Code& code, std::int64_t iterations, const void* memory) {
    const auto start = std::chrono::steady_clock::now();
    code.entry<Loop>()(iterations, memory);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

double fma_peak(Isa isa, double seconds) {
    require_vectors(isa);
    std::array<std::uint8_t, kMostCodeBytes> buffer;
    const Code code = LoopEmitter(isa, buffer.data()).fmas();
    const double flops_per_loop = 2.0 * kFmasPerLoop * vector_file(isa).bytes / 4;
    constexpr std::int64_t trial = 10000;
    const double trial_seconds = std::max(seconds_of(code, trial, nullptr), 1e-9);
    const auto iterations = std::max<std::int64_t>(
        1, static_cast<std::int64_t>(trial * seconds / kStretches / trial_seconds));
    double best = 0;
    for (int stretch = 0; stretch < kStretches; ++stretch) {
        const double elapsed = seconds_of(code, iterations, nullptr);
        best = std::max(best, flops_per_loop * static_cast<double>(iterations) / elapsed);
    }
    return best;
}

double read_bandwidth(Isa isa, std::int64_t bytes, double seconds) {
    require_vectors(isa);
    std::array<std::uint8_t, kMostCodeBytes> code_buffer;
    const Code code = LoopEmitter(isa, code_buffer.data()).loads();
    const std::int64_t bytes_per_loop = std::int64_t{kLoadsPerLoop} * vector_file(isa).bytes;
    const std::int64_t iterations = std::max<std::int64_t>(1, bytes / bytes_per_loop);
    const auto size = static_cast<std::size_t>(iterations * bytes_per_loop);
    constexpr std::align_val_t line{64};
    const auto free_aligned = [](std::uint8_t* memory) { operator delete[](memory, line); };
    const std::unique_ptr<std::uint8_t[], decltype(free_aligned)> memory(
        static_cast<std::uint8_t*>(operator new[](size, line)), free_aligned);
    std::memset(memory.get(), 1, size);
    double best = 0;
    double spent = 0;
    while (spent < seconds) {
        const double elapsed = std::max(seconds_of(code, iterations, memory.get()), 1e-9);
        best = std::max(best, static_cast<double>(size) / elapsed);
        spent += elapsed;
    }
    return best;
}

}  // namespace dlprim
