#include "jit/element_assembler.h"

#include <bit>

namespace dlprim {
namespace {

constexpr std::uint32_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value); }

std::size_t bytes(int count) { return static_cast<std::size_t>(count); }

}  // namespace

void ElementAssembler::load_elements(int index, const Xbyak::RegExp& from, DType dtype,
                                     bool masked) {
    if (size_of(dtype) == 4) {
        load(index, from, masked);
        return;
    }
    const Vector v = vector(index);
    const Xbyak::Xmm low(index);
    const bool half = dtype == DType::bf16;
    if (avx512()) {
        const auto to = masked ? v | tail_mask() | T_z : v;
        if (half) vpmovzxwd(to, ptr[from]);
        if (dtype == DType::u8) vpmovzxbd(to, ptr[from]);
        if (dtype == DType::s8) vpmovsxbd(to, ptr[from]);
    } else {
        load_low(index, from, static_cast<int>(size_of(dtype)), masked ? tail_lanes() : 8);
        if (half) vpmovzxwd(v, low);
        if (dtype == DType::u8) vpmovzxbd(v, low);
        if (dtype == DType::s8) vpmovsxbd(v, low);
    }
    if (half) {
        shift_words_left(index, 16);
    } else {
        words_to_floats(index);
    }
}

void ElementAssembler::store_elements(const Xbyak::RegExp& to, int index, DType dtype, bool masked,
                                      int scratch) {
    if (size_of(dtype) == 4) {
        store(to, index, masked, scratch);
        return;
    }
    if (dtype == DType::bf16 && isa() >= Isa::avx512_bf16) {
        const Xbyak::Ymm narrow(index);
        vcvtneps2bf16(narrow, Xbyak::Zmm(index));
        if (masked) {
            vmovdqu16(ptr[to] | tail_mask(), narrow);
        } else {
            vmovups(ptr[to], narrow);
        }
        return;
    }
    if (dtype == DType::bf16) {
        round_to_bf16(index, scratch);
    } else {
        clamp_to_int8(index, dtype);
        vcvtps2dq(vector(index), vector(index));
    }
    narrow_and_store(to, index, dtype, masked);
}

void ElementAssembler::store_between(const Xbyak::RegExp& to, int index, DType dtype, bool masked,
                                     const Bounds& bounds) {
    const Vector x = vector(index);
    vmaxps(x, x, vector(bounds.lowest));
    vminps(x, x, vector(bounds.highest));
    vcvtps2dq(x, x);
    vpaddd(x, x, vector(bounds.zero_point));
    narrow_and_store(to, index, dtype, masked);
}

void ElementAssembler::store_exactly(const Xbyak::RegExp& to, int index, bool masked) {
    vpsrld(vector(index), vector(index), 16);
    narrow_and_store(to, index, DType::bf16, masked);
}

void ElementAssembler::round_to_bf16(int index, int scratch) {
    const Vector x = vector(index);
    const Vector rounded = vector(scratch);
    const Vector nan = vector(scratch + 1);
    vpsrld(rounded, x, 16);
    and_constant(scratch, 1);
    vpaddd(rounded, rounded, x);
    vpaddd(rounded, rounded, constant(0x7fff));
    if (avx512()) {
        vcmpps(k2, x, x, 3);  // unordered
        vpord(rounded | k2, x, constant(0x00400000));
    } else {
        vcmpps(nan, x, x, 3);
        vpor(x, x, constant(0x00400000));
        vblendvps(rounded, rounded, x, nan);
    }
    vpsrld(x, rounded, 16);
}

// The bounds come second, so that a NaN becomes the lower one.
void ElementAssembler::clamp_to_int8(int index, DType dtype) {
    const Vector x = vector(index);
    const bool is_unsigned = dtype == DType::u8;
    vmaxps(x, x, constant(bits_of(is_unsigned ? 0.0F : -128.0F)));
    vminps(x, x, constant(bits_of(is_unsigned ? 255.0F : 127.0F)));
}

void ElementAssembler::narrow_and_store(const Xbyak::RegExp& to, int index, DType dtype,
                                        bool masked) {
    if (avx512()) {
        const auto memory = masked ? ptr[to] | tail_mask() : ptr[to];
        if (dtype == DType::bf16) {
            vpmovdw(memory, Xbyak::Zmm(index));
        } else {
            vpmovdb(memory, Xbyak::Zmm(index));
        }
        return;
    }
    pack_low(index, dtype);
    store_low(to, index, static_cast<int>(size_of(dtype)), masked ? tail_lanes() : 8);
}

// AVX2: eight words, already in range, to eight elements at the bottom of the register.
void ElementAssembler::pack_low(int index, DType dtype) {
    const Xbyak::Ymm all(index);
    const Xbyak::Xmm low(index);
    if (dtype == DType::bf16) {
        vpackusdw(all, all, all);
    } else {
        vpackssdw(all, all, all);
    }
    vpermq(all, all, 0b00001000);  // packing works within 128-bit lanes: bring both parts down
    if (dtype == DType::u8) vpackuswb(low, low, low);
    if (dtype == DType::s8) vpacksswb(low, low, low);
}

// The first `count` (1 to 8) elements of 1 or 2 bytes, in moves of 16, 8, 4, 2 and 1 bytes.
void ElementAssembler::store_low(const Xbyak::RegExp& to, int index, int element, int count) {
    const Xbyak::Xmm low(index);
    int at = 0;
    int left = element * count;
    const auto moved = [&](int size) {
        at += size;
        left -= size;
        if (left > 0) vpsrldq(low, low, static_cast<std::uint8_t>(size));
    };
    if (left == 16) {
        vmovups(ptr[to], low);
        return;
    }
    if (left >= 8) {
        vmovq(qword[to], low);
        moved(8);
    }
    if (left >= 4) {
        vmovd(dword[to + bytes(at)], low);
        moved(4);
    }
    if (left >= 2) {
        vpextrw(word[to + bytes(at)], low, 0);
        moved(2);
    }
    if (left >= 1) vpextrb(byte[to + bytes(at)], low, 0);
}

void ElementAssembler::load_low(int index, const Xbyak::RegExp& from, int element, int count) {
    const Xbyak::Xmm low(index);
    const int size = element * count;
    if (size == 16) {
        vmovups(low, ptr[from]);
        return;
    }
    int at = 0;
    if (size >= 8) {
        vmovq(low, qword[from]);
        at = 8;
    } else {
        vpxor(low, low, low);
    }
    const auto fits = [&](int part) { return at + part <= size; };
    const auto lane = [&](int part) { return static_cast<std::uint8_t>(at / part); };
    if (fits(4)) {
        vpinsrd(low, low, dword[from + bytes(at)], lane(4));
        at += 4;
    }
    if (fits(2)) {
        vpinsrw(low, low, word[from + bytes(at)], lane(2));
        at += 2;
    }
    if (fits(1)) vpinsrb(low, low, byte[from + bytes(at)], lane(1));
}

}  // namespace dlprim
