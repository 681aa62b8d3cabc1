#include "brgemm/peak.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "brgemm/amx/tile_map.h"
#include "brgemm/multiply.h"
#include "brgemm/registers.h"
#include "jit/code.h"
#include "jit/vector_assembler.h"

namespace dlprim {
namespace {

constexpr std::size_t kMostCodeBytes = 1 << 14;
constexpr int kFmasPerLoop = 96;
constexpr int kBytesPerLoop = 2048;
constexpr std::size_t kBytesPerLook = 1 << 22;  // read between two looks at the clock
constexpr double kFmasPerSecond = 8e9;          // about; turns seconds into a number of loops
constexpr double kTileProductsPerSecond = 2e8;  // the same

using Loop = void(std::int64_t iterations, const void* memory);

class LoopEmitter : private VectorAssembler {
public:
    LoopEmitter(Isa isa, void* buffer) : VectorAssembler(isa, buffer, kMostCodeBytes) {}

    Code multiplies(Multiply multiply) {
        Xbyak::Label next;
        // All registers but two factors: more chains than any unit's latency times throughput.
        const int chains = vector_file(isa()).registers / 4 * 3;
        for (int i = 0; i < chains + 2; ++i) zero(i);
        L(next);
        for (int i = 0; i < kFmasPerLoop; ++i) {
            const int to = 2 + i % chains;
            if (multiply == Multiply::dot_bf16) {
                vdpbf16ps(vector(to), vector(1), vector(0));
            } else if (multiply == Multiply::dot_int8) {
                dot_int8(to, 0, 1);
            } else {
                fma(to, 0, 1);
            }
        }
        return finish(next);
    }

    // Products of whole tiles of numbers in memory: the clock falls with the bits that change.
    Code tile_products(DType operands) {
        constexpr int kChains = 4;
        Xbyak::Label next, configuration;
        ldtilecfg(ptr[rip + configuration]);
        mov(eax, kTileRowBytes);
        for (int tile = 0; tile < kTileRegisters; ++tile) {
            tileloadd(Xbyak::Tmm(tile), ptr[rsi + rax + tile]);
        }
        L(next);
        for (int i = 0; i < kFmasPerLoop; ++i) {
            const Xbyak::Tmm to(i % kChains);
            const Xbyak::Tmm a(kChains + i / 2 % 2);
            const Xbyak::Tmm b(kChains + 2 + i % 2);
            is_int8(operands) ? tdpbusd(to, a, b) : tdpbf16ps(to, a, b);
        }
        dec(rdi);
        jnz(next, T_NEAR);
        tilerelease();
        ret();
        align(kTileRowBytes);
        L(configuration);
        const BrgemmSpec spec = {.m = 32, .n = 32, .k = 32, .a_type = DType::bf16};
        const Tile tile = {.rows = 2 * kMostTileRows, .vectors = 2};
        for (const std::uint8_t value : tile_configuration(spec, tile, kMostTileRows).bytes) {
            db(value);
        }
        return Code({getCode(), getSize()});
    }

    Code loads() {
        Xbyak::Label next;
        L(next);
        for (int at = 0; at < kBytesPerLoop; at += vector_bytes()) {
            load(at / vector_bytes() % 8, rsi + at, false);
        }
        add(rsi, kBytesPerLoop);
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

// A loop and the operations of one iteration.
struct PeakLoop {
    Code code;
    double operations;
};

PeakLoop tile_loop(DType operands) {
    if (usable_isa() < Isa::amx) return {};
    std::array<std::uint8_t, kMostCodeBytes> buffer;
    const std::int64_t words = kMostTileRows * kMostTileRows * kMostTileRows;
    return {LoopEmitter(Isa::amx, buffer.data()).tile_products(operands),
            2.0 * kFmasPerLoop * static_cast<double>(words * elements_per_word(operands))};
}

PeakLoop peak_loop(Multiply multiply, Isa isa) {
    if (isa > usable_isa()) return {};
    std::array<std::uint8_t, kMostCodeBytes> buffer;
    const int words = vector_file(isa).bytes / kWordBytes;
    const int per_word = multiply == Multiply::dot_bf16   ? 2
                         : multiply == Multiply::dot_int8 ? 4
                                                          : 1;
    return {LoopEmitter(isa, buffer.data()).multiplies(multiply),
            2.0 * kFmasPerLoop * words * per_word};
}

// Generated once, so that measuring costs no system calls.
const PeakLoop& peak_loop_for(DType operands, Isa isa) {
    static const PeakLoop avx2 = peak_loop(Multiply::fma, Isa::avx2);
    static const PeakLoop avx512 = peak_loop(Multiply::fma, Isa::avx512);
    static const PeakLoop int8 = peak_loop(Multiply::dot_int8, Isa::avx512_vnni);
    static const PeakLoop int8_avx2 = peak_loop(Multiply::dot_int8, Isa::avx2_vnni);
    static const PeakLoop bf16 = peak_loop(Multiply::dot_bf16, Isa::avx512_bf16);
    static const PeakLoop bf16_tiles = tile_loop(DType::bf16);
    static const PeakLoop int8_tiles = tile_loop(DType::u8);
    if (isa >= Isa::amx && operands == DType::bf16) return bf16_tiles;
    if (isa >= Isa::amx && is_int8(operands)) return int8_tiles;
    if (operands == DType::bf16 && isa >= Isa::avx512_bf16) return bf16;
    if (is_int8(operands) && multiplies_bytes(isa)) return isa >= Isa::avx512 ? int8 : int8_avx2;
    return isa >= Isa::avx512 ? avx512 : avx2;
}

double seconds_of(const Code& code, std::int64_t iterations, const void* memory) {
    const auto start = std::chrono::steady_clock::now();
    code.entry<Loop>()(iterations, memory);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Bfloat16 numbers near 1, and bytes of all sizes.
std::vector<std::uint16_t> numbers_for_tiles() {
    std::vector<std::uint16_t> numbers(kTileBytes);
    std::uint32_t state = 1;
    for (std::uint16_t& number : numbers) {
        state = state * 1664525 + 1013904223;  // Numerical Recipes
        number = static_cast<std::uint16_t>(0x3f00 | state >> 24 | (state >> 23 & 1) << 15);
    }
    return numbers;
}

// Zeros in huge pages, as large arrays of the library are: with others a read waits for addresses.
class ZeroPages {
public:
    explicit ZeroPages(std::size_t bytes) : data_(operator new(bytes, kHugePage)) {
        madvise(data_, bytes, MADV_HUGEPAGE);
        std::memset(data_, 0, bytes);
    }
    ZeroPages(const ZeroPages&) = delete;
    ZeroPages& operator=(const ZeroPages&) = delete;
    ~ZeroPages() { operator delete(data_, kHugePage); }

    const void* data() const { return data_; }

private:
    static constexpr std::align_val_t kHugePage{std::size_t{1} << 21};

    void* data_;
};

}  // namespace

double fma_peak(DType operands, Isa isa, double seconds) {
    require_vectors(isa);
    const PeakLoop& loop = peak_loop_for(operands, usable_isa(isa));
    static const std::vector<std::uint16_t> numbers = numbers_for_tiles();
    const bool tiles = isa >= Isa::amx && operands != DType::f32;
    const double rate = tiles ? kTileProductsPerSecond : kFmasPerSecond;
    const auto loops =
        std::max<std::int64_t>(1, static_cast<std::int64_t>(seconds * rate) / kFmasPerLoop);
    return loop.operations * static_cast<double>(loops) /
           seconds_of(loop.code, loops, numbers.data());
}

double read_bandwidth(Isa isa, std::int64_t bytes, double seconds) {
    require_vectors(isa);
    std::array<std::uint8_t, kMostCodeBytes> code_buffer;
    const Code code = LoopEmitter(isa, code_buffer.data()).loads();
    const std::int64_t iterations = std::max<std::int64_t>(1, bytes / kBytesPerLoop);
    const auto size = static_cast<std::size_t>(iterations * kBytesPerLoop);
    const ZeroPages memory(size);
    seconds_of(code, iterations, memory.data());  // brings it into the caches
    const auto passes_per_look = std::max<std::size_t>(1, kBytesPerLook / size);
    const auto start = std::chrono::steady_clock::now();
    double spent = 0;
    double read = 0;
    while (spent < seconds) {
        for (std::size_t pass = 0; pass < passes_per_look; ++pass) {
            code.entry<Loop>()(iterations, memory.data());
        }
        read += static_cast<double>(size * passes_per_look);
        spent = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    }
    return read / spent;
}

}  // namespace dlprim
