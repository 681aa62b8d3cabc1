#include "jit/element_assembler.h"

#include <algorithm>
#include <array>
#include <bit>

namespace dlprim {
namespace {

constexpr std::uint8_t kNearestEven = 0;

// Bytes of the largest move of a part of a vector that takes no more than `left`.
int largest_move(int left) {
    return static_cast<int>(std::bit_floor(static_cast<unsigned>(std::min(left, 8))));
}

// Of the parts of a packed register that one move takes, at their multiples: 8 to 64 bytes.
int largest_part(int at, int left) {
    int size = 8;
    while (size * 2 <= left && at % (size * 2) == 0) size *= 2;
    return size;
}

std::uint8_t part(int at, int size) { return static_cast<std::uint8_t>(at / size); }

// Of the words of a packed register: four bytes of each of four vectors lie side by side in each
// of its parts of 128 bits.
std::array<std::uint8_t, 64> order_of_packed(int vector_bytes) {
    std::array<std::uint8_t, 64> words = {};
    const int parts = vector_bytes / 16;
    for (int i = 0; i < vector_bytes / 4; ++i) {
        words[static_cast<std::size_t>(i) * 4] =
            static_cast<std::uint8_t>(i % parts * 4 + i / parts);
    }
    return words;
}

}  // namespace

void ElementAssembler::load_elements(int index, const Xbyak::RegExp& from, DType dtype,
                                     bool masked) {
    if (size_of(dtype) == 4) {
        load(index, from, masked);
        return;
    }
    const auto widen = [&](const Vector& to, const Xbyak::Operand& narrow) {
        if (dtype == DType::f16) vcvtph2ps(to, narrow);
        if (dtype == DType::bf16) vpmovzxwd(to, narrow);
        if (dtype == DType::u8) vpmovzxbd(to, narrow);
        if (dtype == DType::s8) vpmovsxbd(to, narrow);
    };
    const Vector v = vector(index);
    if (avx512()) {
        widen(masked ? v | tail_mask() | T_z : v, ptr[from]);
    } else {
        load_low(index, from, static_cast<int>(size_of(dtype)), masked ? tail_lanes() : 8);
        widen(v, Xbyak::Xmm(index));
    }
    if (dtype == DType::bf16) shift_words_left(index, 16);
    if (is_int8(dtype)) words_to_floats(index);
}

void ElementAssembler::store_elements(const Xbyak::RegExp& to, int index, DType dtype, bool masked,
                                      int scratch) {
    if (size_of(dtype) == 4) {
        store(to, index, masked, scratch);
        return;
    }
    if (dtype == DType::f16) {
        vcvtps2ph(masked ? ptr[to] | tail_mask() : ptr[to], vector(index), kNearestEven);
        return;
    }
    if (dtype == DType::bf16 && isa() >= Isa::avx512_bf16) {
        const Xbyak::Ymm narrow(index);
        vcvtneps2bf16(narrow, Xbyak::Zmm(index));
        masked ? vmovdqu16(ptr[to] | tail_mask(), narrow) : vmovups(ptr[to], narrow);
        return;
    }
    if (dtype == DType::bf16) {
        round_to_bf16(index, scratch);
    } else {
        round_to_bytes(index, index, dtype, true);
    }
    narrow_and_store(to, index, dtype, masked);
}

void ElementAssembler::round_to_f16(int index) {
    if (avx512()) {
        vcvtps2ph(Xbyak::Ymm(index), Xbyak::Zmm(index), kNearestEven);
    } else {
        vcvtps2ph(Xbyak::Xmm(index), Xbyak::Ymm(index), kNearestEven);
    }
    widen_halves(index);
}

void ElementAssembler::widen_halves(int index) {
    if (avx512()) {
        vcvtph2ps(Xbyak::Zmm(index), Xbyak::Ymm(index));
    } else {
        vcvtph2ps(Xbyak::Ymm(index), Xbyak::Xmm(index));
    }
}

// The bounds come second, so that a NaN becomes the lower one.
void ElementAssembler::round_to_bytes(int to, int from, DType dtype, bool bounds_above) {
    const bool is_unsigned = dtype == DType::u8;
    const Vector x = vector(to);
    vmaxps(x, vector(from), number(is_unsigned ? 0.0F : -128.0F));
    if (bounds_above) vminps(x, x, number(is_unsigned ? 255.0F : 127.0F));
    vcvtps2dq(x, x);
}

// What is above 255 is so as a word without a sign, too.
void ElementAssembler::store_as_bytes(const Xbyak::RegExp& to, int index, int from, DType dtype,
                                      bool masked) {
    const bool saturates = dtype == DType::u8 && avx512();
    round_to_bytes(index, from, dtype, !saturates);
    if (!saturates) return narrow_and_store(to, index, dtype, masked);
    vpmovusdb(masked ? ptr[to] | tail_mask() : ptr[to], Xbyak::Zmm(index));
}

void ElementAssembler::start_packing(const Xbyak::RegExp& zero_point, const BytePacking& with) {
    const Vector lowest = vector(with.lowest);
    vcvtps2dq(lowest, lowest);
    vpackssdw(lowest, lowest, lowest);
    vpbroadcastw(vector(with.zero_point), ptr[zero_point]);
    vmovups(vector(with.order), ptr[line(order_of_packed(vector_bytes()))]);
}

// Rounding and packing keep the order of numbers, and what no integer holds, NaN too, is lowest; so
// the lower bound may come this late. Additions that saturate would take the turns of products.
void ElementAssembler::pack_bytes(std::span<const int> words, DType dtype,
                                  const BytePacking& with) {
    const auto at = [&](std::size_t i) { return vector(words[std::min(i, words.size() - 1)]); };
    for (std::size_t i = 0; i < words.size(); i += 2) {
        vpackssdw(at(i), at(i), at(i + 1));
        vpmaxsw(at(i), at(i), vector(with.lowest));
        vpaddw(at(i), at(i), vector(with.zero_point));
    }
    const Vector bytes = at(0);
    dtype == DType::u8 ? vpackuswb(bytes, bytes, at(2)) : vpacksswb(bytes, bytes, at(2));
    const auto full = [&](int index) {
        return Xbyak::Ymm(index, vector(index).getKind(), vector(index).getBit());
    };
    vpermd(full(words[0]), full(with.order), full(words[0]));
}

// Each in as few moves as its place allows.
void ElementAssembler::store_packed(const Xbyak::RegExp& to, std::span<const int> words, int before,
                                    int vectors) {
    const int each = vector_bytes() / 4;
    const int end = (before + vectors) * each;
    int size = 0;
    for (int at = before * each; at < end; at += size) {
        size = largest_part(at, end - at);
        const auto memory = ptr[to + static_cast<std::size_t>(at - before * each)];
        store_part(memory, words, at, size);
    }
}

void ElementAssembler::store_packed_tail(const Xbyak::RegExp& to, std::span<const int> words,
                                         int before) {
    const int at = before * vector_bytes() / 4;
    const int low = at > 0 || !avx512() ? words.back() : words[0];
    take_part(low, words[0], at);
    if (avx512()) {
        vmovdqu8(ptr[to] | tail_mask(), Xbyak::Xmm(low));
    } else {
        store_low(to, low, 1, tail_lanes());
    }
}

void ElementAssembler::store_part(const Xbyak::Address& to, std::span<const int> words, int at,
                                  int size) {
    const int index = words[0];
    if (size == 64) return vmovups(to, Xbyak::Zmm(index));
    if (size == 32 && at == 32) return vextractf64x4(to, Xbyak::Zmm(index), 1);
    if (size == 32) return vmovups(to, Xbyak::Ymm(index));
    if (size == 16 && at == 0) return vmovups(to, Xbyak::Xmm(index));
    if (size == 16 && avx512()) return vextractf32x4(to, Xbyak::Zmm(index), part(at, 16));
    if (size == 16) return vextractf128(to, Xbyak::Ymm(index), 1);
    if (at == 8) return vmovhps(to, Xbyak::Xmm(index));
    if (at > 8) take_part(words.back(), index, at);
    vmovq(to, Xbyak::Xmm(at > 8 ? words.back() : index));
}

// To the bottom of another register.
void ElementAssembler::take_part(int to, int index, int at) {
    const Xbyak::Xmm low(to);
    if (at == 0 && to != index) vmovaps(low, Xbyak::Xmm(index));
    if (at == 8) vpsrldq(low, Xbyak::Xmm(index), 8);
    if (at < 16) return;
    avx512() ? vextracti32x4(low, Xbyak::Zmm(index), part(at, 16))
             : vextracti128(low, Xbyak::Ymm(index), 1);
    if (at == 24) vpsrldq(low, low, 8);
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

void ElementAssembler::narrow_and_store(const Xbyak::RegExp& to, int index, DType dtype,
                                        bool masked) {
    if (avx512()) {
        const auto memory = masked ? ptr[to] | tail_mask() : ptr[to];
        const Xbyak::Zmm words(index);
        dtype == DType::bf16 ? vpmovdw(memory, words) : vpmovdb(memory, words);
        return;
    }
    pack_low(index, dtype);
    store_low(to, index, static_cast<int>(size_of(dtype)), masked ? tail_lanes() : 8);
}

// AVX2: eight words, already in range, to eight elements at the bottom of the register.
void ElementAssembler::pack_low(int index, DType dtype) {
    const Xbyak::Ymm all(index);
    const Xbyak::Xmm low(index);
    dtype == DType::bf16 ? vpackusdw(all, all, all) : vpackssdw(all, all, all);
    vpermq(all, all, 0b00001000);  // packing works within 128-bit lanes: bring both parts down
    if (dtype == DType::u8) vpackuswb(low, low, low);
    if (dtype == DType::s8) vpacksswb(low, low, low);
}

// The first `count` (1 to 8) elements of 1 or 2 bytes, in moves of 16, 8, 4, 2 and 1 bytes.
void ElementAssembler::store_low(const Xbyak::RegExp& to, int index, int element, int count) {
    const Xbyak::Xmm low(index);
    const int size = element * count;
    if (size == 16) return vmovups(ptr[to], low);
    int part = 0;
    for (int at = 0; at < size; at += part) {
        if (at > 0) vpsrldq(low, low, static_cast<std::uint8_t>(part));
        part = largest_move(size - at);
        const Xbyak::Address memory = ptr[to + static_cast<std::size_t>(at)];
        switch (part) {
            case 8: vmovq(memory, low); break;
            case 4: vmovd(memory, low); break;
            case 2: vpextrw(memory, low, 0); break;
            default: vpextrb(memory, low, 0);
        }
    }
}

void ElementAssembler::load_low(int index, const Xbyak::RegExp& from, int element, int count) {
    const Xbyak::Xmm low(index);
    const int size = element * count;
    if (size == 16) return vmovups(low, ptr[from]);
    if (size < 8) vpxor(low, low, low);
    int part = 0;
    for (int at = 0; at < size; at += part) {
        part = largest_move(size - at);
        const Xbyak::Address memory = ptr[from + static_cast<std::size_t>(at)];
        const auto lane = static_cast<std::uint8_t>(at / part);
        switch (part) {
            case 8: vmovq(low, memory); break;
            case 4: vpinsrd(low, low, memory, lane); break;
            case 2: vpinsrw(low, low, memory, lane); break;
            default: vpinsrb(low, low, memory, lane);
        }
    }
}

}  // namespace dlprim
