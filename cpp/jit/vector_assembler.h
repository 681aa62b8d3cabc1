// Single vector instructions with the differences between AVX2 and AVX-512 hidden: width of the
// registers, opmask or mask vector, EVEX-only forms. Steps of more than one instruction belong to
// the emitters. Code is assembled into an ordinary buffer and is position independent; Code
// copies it to executable pages.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <map>

#include <xbyak/xbyak.h>

#include "jit/isa.h"

namespace dlprim {

class VectorAssembler : protected Xbyak::CodeGenerator {
public:
    // `buffer` must outlive the assembler.
    VectorAssembler(Isa isa, void* buffer, std::size_t size)
        : CodeGenerator(size, buffer), isa_(isa), bytes_(vector_file(isa).bytes) {}

protected:
    using Vector = Xbyak::Xmm;

    Isa isa() const { return isa_; }
    bool avx512() const { return isa_ >= Isa::avx512; }
    int tail_lanes() const { return tail_lanes_; }
    int vector_bytes() const { return bytes_; }

    Vector vector(int index) const {
        return {avx512() ? Xbyak::Operand::ZMM : Xbyak::Operand::YMM, index};
    }

    void zero(int index) {
        const Xbyak::Xmm x(index);
        index < 16 ? vxorps(x, x, x) : vpxord(x, x, x);
    }

    void copy(int to, int from) { vmovaps(vector(to), vector(from)); }

    // Lanes of a partial vector; call once in the prologue where the plan has a tail.
    void set_tail(int lanes) {
        tail_lanes_ = lanes;
        if (!avx512()) return;
        mov(eax, (1U << lanes) - 1);
        kmovw(tail_mask_, eax);
    }

    // A 32-bit constant in every lane, as an operand of instructions that can broadcast a word.
    Xbyak::Address constant(std::uint32_t bits) {
        Xbyak::Label& label = constants_[bits];
        if (avx512()) return ptr_b[rip + label];
        return ptr[rip + label];
    }

    Xbyak::Address number(float value) { return constant(std::bit_cast<std::uint32_t>(value)); }

    void load_constant(int index, std::uint32_t bits) {
        vpbroadcastd(vector(index), dword[rip + constants_[bits]]);
    }

    // A cache line of constants, as an operand.
    auto line(const std::array<std::uint8_t, 64>& bytes) { return rip + lines_[bytes]; }

    // Places the constants that the code refers to; call once, after the last instruction.
    void emit_constants() {
        emit_words();
        for (auto& [bytes, label] : lines_) {
            align(64);
            L(label);
            for (const std::uint8_t value : bytes) db(value);
        }
    }

    // A masked load leaves zero in the lanes outside the tail and does not touch their memory.
    void load(int index, const Xbyak::RegExp& from, bool masked) {
        const Vector v = vector(index);
        if (!masked) {
            vmovups(v, ptr[from]);
        } else if (avx512()) {
            vmovups(v | tail_mask_ | T_z, ptr[from]);
        } else {
            load_mask(index);
            vmaskmovps(v, v, ptr[from]);
        }
    }

    // `bytes` from the front of a register: a whole vector or what its elements take as a shorter
    // type, 16 bytes at least. `to` is aligned to as many.
    void store_around_caches(const Xbyak::RegExp& to, int index, std::int64_t bytes) {
        const auto kind = bytes == 64   ? Xbyak::Operand::ZMM
                          : bytes == 32 ? Xbyak::Operand::YMM
                                        : Xbyak::Operand::XMM;
        vmovntps(ptr[to], Vector(kind, index));
    }

    // `mask_scratch` is overwritten by a masked store on AVX2.
    void store(const Xbyak::RegExp& to, int index, bool masked, int mask_scratch) {
        if (!masked) {
            vmovups(ptr[to], vector(index));
        } else if (avx512()) {
            vmovups(ptr[to] | tail_mask_, vector(index));
        } else {
            load_mask(mask_scratch);
            vmaskmovps(ptr[to], vector(mask_scratch), vector(index));
        }
    }

    void broadcast(int index, const Xbyak::RegExp& from) { vbroadcastss(vector(index), ptr[from]); }

    // Four consecutive floats, repeated in every 128-bit lane.
    void broadcast_quad(int index, const Xbyak::RegExp& from) {
        if (avx512()) {
            vbroadcastf32x4(Xbyak::Zmm(index), ptr[from]);
        } else {
            vbroadcastf128(Xbyak::Ymm(index), ptr[from]);
        }
    }

    // Element `which` of a quad in every lane.
    void spread_quad(int index, int quad, int which) {
        vpshufd(vector(index), vector(quad), static_cast<std::uint8_t>(which * 0b01010101));
    }

    // Floats to integers that are floats, halves to even ones.
    void round_to_even(int index) {
        const Vector v = vector(index);
        avx512() ? vrndscaleps(v, v, 0) : vroundps(v, v, 0);
    }

    void fma(int accumulator, int a, int b) {
        vfmadd231ps(vector(accumulator), vector(a), vector(b));
    }

    // Unsigned bytes times signed bytes, four products added to each word.
    void dot_int8(int accumulator, int unsigned_bytes, int signed_bytes) {
        vpdpbusd(vector(accumulator), vector(unsigned_bytes), vector(signed_bytes),
                 avx512() ? Xbyak::EvexEncoding : Xbyak::VexEncoding);
    }

    void add_words(int to, int from) { vpaddd(vector(to), vector(to), vector(from)); }
    void multiply_words(int to, int from) { vpmulld(vector(to), vector(to), vector(from)); }
    void shift_words_left(int index, int bits) { vpslld(vector(index), vector(index), imm8(bits)); }

    void and_constant(int index, std::uint32_t bits) {
        const Vector v = vector(index);
        avx512() ? vpandd(v, v, constant(bits)) : vpand(v, v, constant(bits));
    }

    void xor_constant(int index, std::uint32_t bits) {
        const Vector v = vector(index);
        avx512() ? vpxord(v, v, constant(bits)) : vpxor(v, v, constant(bits));
    }

    void broadcast_register(int index, const Xbyak::Reg32& from) {
        if (avx512()) {
            vpbroadcastd(vector(index), from);
        } else {
            vmovd(Xbyak::Xmm(index), from);
            vpbroadcastd(vector(index), Xbyak::Xmm(index));
        }
    }

    void add_floats(int to, int from) { vaddps(vector(to), vector(to), vector(from)); }
    void multiply_floats(int to, int from) { vmulps(vector(to), vector(to), vector(from)); }
    void words_to_floats(int index) { vcvtdq2ps(vector(index), vector(index)); }

    // max(zero, x) in this operand order returns x when x is NaN.
    void relu(int index, int zero_register) {
        vmaxps(vector(index), vector(zero_register), vector(index));
    }

    // AVX2: the lanes of a partial vector as all ones.
    void load_mask(int index) { vmovups(vector(index), ptr[rip + mask_table_]); }

    Xbyak::Opmask tail_mask() const { return tail_mask_; }

private:
    void emit_words() {
        const bool has_table = !avx512() && tail_lanes_ > 0;
        if (constants_.empty() && !has_table) return;
        align(64);
        for (auto& [bits, label] : constants_) {
            L(label);
            const int copies = avx512() ? 1 : bytes_ / 4;
            for (int copy = 0; copy < copies; ++copy) dd(bits);
        }
        if (!has_table) return;
        L(mask_table_);
        for (int lane = 0; lane < bytes_ / 4; ++lane) dd(lane < tail_lanes_ ? ~0U : 0U);
    }

    static std::uint8_t imm8(int value) { return static_cast<std::uint8_t>(value); }

    Isa isa_;
    int bytes_;
    int tail_lanes_ = 0;
    Xbyak::Opmask tail_mask_ = k1;
    Xbyak::Label mask_table_;
    std::map<std::uint32_t, Xbyak::Label> constants_;
    std::map<std::array<std::uint8_t, 64>, Xbyak::Label> lines_;
};

}  // namespace dlprim
