#include <array>
#include <cstddef>

#include "jit/vector_assembler.h"
#include "moves/emit_moves.h"

namespace dlprim {
namespace {

// AVX-512 chooses the lanes of either vector from two; AVX2 interleaves lanes in halves of 128 bits
// and exchanges these.
class PairEmitter : VectorAssembler {
public:
    static constexpr std::size_t kMostCodeBytes = 4096;

    PairEmitter(const MoveSpec& spec, Isa isa, void* buffer)
        : VectorAssembler(isa, buffer, kMostCodeBytes),
          joins_(spec.way == MoveSpec::Way::join_two) {}

    std::vector<std::uint8_t> emit() {
        mov(line_src_, field(offsetof(MoveArgs, src)));
        mov(line_dst_, field(offsetof(MoveArgs, dst)));
        mov(lines_, field(offsetof(MoveArgs, lines)));
        mov(row_, field(joins_ ? offsetof(MoveArgs, src_row) : offsetof(MoveArgs, dst_row)));
        for (int part = 0; avx512() && part < 2; ++part) {
            vmovups(vector(kOrder + part), ptr[rip + orders_.at(static_cast<std::size_t>(part))]);
        }
        Xbyak::Label line, next;
        L(line);
        mov(src_, line_src_);
        mov(dst_, line_dst_);
        mov(count_, field(offsetof(MoveArgs, count)));
        L(next);
        for (int done = 0; done < kTileSide; done += vector_bytes()) {
            load(done);
            avx512() ? choose() : (joins_ ? interleave() : separate());
            store(done);
        }
        add(src_, field(offsetof(MoveArgs, src_step)));
        add(dst_, field(offsetof(MoveArgs, dst_step)));
        dec(count_);
        jnz(next, T_NEAR);
        add(line_src_, field(offsetof(MoveArgs, src_line)));
        add(line_dst_, field(offsetof(MoveArgs, dst_line)));
        dec(lines_);
        jnz(line, T_NEAR);
        vzeroupper();
        ret();
        if (avx512()) emit_orders();
        return {getCode(), getCode() + getSize()};
    }

private:
    using Reg = Xbyak::Reg64;

    static constexpr int kMade = 2;   // vectors behind those that are read
    static constexpr int kOrder = 4;  // of lanes

    Xbyak::Address field(std::size_t offset) const { return qword[args_ + offset]; }

    void load(int done) {
        if (joins_) {
            vmovups(vector(0), ptr[src_ + done]);
            vmovups(vector(1), ptr[src_ + row_ + done]);
        } else {
            vmovups(vector(0), ptr[src_ + 2 * done]);
            vmovups(vector(1), ptr[src_ + (2 * done + vector_bytes())]);
        }
    }

    void store(int done) {
        if (joins_) {
            vmovups(ptr[dst_ + 2 * done], vector(kMade));
            vmovups(ptr[dst_ + (2 * done + vector_bytes())], vector(kMade + 1));
        } else {
            vmovups(ptr[dst_ + done], vector(kMade));
            vmovups(ptr[dst_ + row_ + done], vector(kMade + 1));
        }
    }

    void choose() {
        for (int part = 0; part < 2; ++part) {
            vmovaps(vector(kMade + part), vector(kOrder + part));
            vpermi2d(vector(kMade + part), vector(0), vector(1));
        }
    }

    void interleave() {
        const Xbyak::Ymm low(kOrder), high(kOrder + 1), a(0), b(1);
        vunpcklps(low, a, b);
        vunpckhps(high, a, b);
        vperm2f128(Xbyak::Ymm(kMade), low, high, 0x20);
        vperm2f128(Xbyak::Ymm(kMade + 1), low, high, 0x31);
    }

    void separate() {
        const Xbyak::Ymm a(0), b(1);
        for (int part = 0; part < 2; ++part) {
            const Xbyak::Ymm made(kMade + part);
            vshufps(made, a, b, part == 0 ? 0b10001000 : 0b11011101);
            vpermpd(made, made, 0b11011000);
        }
    }

    // Of the lanes of both vectors, those of the second behind those of the first.
    void emit_orders() {
        const int lanes = vector_bytes() / 4;
        for (int part = 0; part < 2; ++part) {
            L(orders_.at(static_cast<std::size_t>(part)));
            for (int i = 0; i < lanes; ++i) {
                const int joined = i % 2 * lanes + i / 2 + part * lanes / 2;
                dd(static_cast<std::uint32_t>(joins_ ? joined : 2 * i + part));
            }
        }
    }

    bool joins_;
    std::array<Xbyak::Label, 2> orders_;

    Reg args_ = rdi;
    Reg src_ = r8;
    Reg dst_ = r9;
    Reg row_ = rcx;  // the distance of rows
    Reg count_ = rax;
    Reg line_src_ = r10;
    Reg line_dst_ = r11;
    Reg lines_ = rsi;
};

}  // namespace

std::vector<std::uint8_t> emit_pairs(const MoveSpec& spec, Isa isa) {
    std::array<std::uint8_t, PairEmitter::kMostCodeBytes> buffer;
    return PairEmitter(spec, isa, buffer.data()).emit();
}

}  // namespace dlprim
