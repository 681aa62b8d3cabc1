#include "amx/tile_product.h"

#include <cstring>

#include <xmmintrin.h>

#define DLPRIM_AVX512 __attribute__((target("avx512f")))

namespace dlprim::testing {
namespace {

using Words = std::uint32_t __attribute__((vector_size(64), may_alias));
using SignedWords = std::int32_t __attribute__((vector_size(64), may_alias));

std::uint32_t word_at(const std::uint8_t* row, int index) {
    std::uint32_t word;
    std::memcpy(&word, row + index * 4, sizeof(word));
    return word;
}

std::int32_t widened_byte(std::uint32_t word, int index, bool is_signed) {
    const auto byte = static_cast<std::uint8_t>(word >> 8 * index);
    return is_signed ? static_cast<std::int8_t>(byte) : byte;
}

// Where the product has no columns it may have become NaN.
void zero_behind_columns(Tile& tile) {
    for (int row = 0; row < tile.rows; ++row)
        std::memset(tile.bytes[row] + tile.row_bytes, 0,
                    static_cast<std::size_t>(Tile::kMostRowBytes - tile.row_bytes));
}

}  // namespace

// Which of several NaNs comes out depends on the order of operands, which compilers change at will,
// and both instructions are to stay between the changes of MXCSR.
DLPRIM_AVX512 void add_bf16_product(Tile& result, const Tile& a, const Tile& b) {
    constexpr unsigned nearest_and_no_subnormals = 0x9FC0;  // with every exception masked
    constexpr std::uint32_t odd_half = 0xFFFF0000;
    const unsigned before = _mm_getcsr();
    _mm_setcsr(nearest_and_no_subnormals);
    for (int m = 0; m < result.rows; ++m) {
        Words even = {};
        Words odd = {};
        for (int k = 0; k < b.rows; ++k) {
            const std::uint32_t pair = word_at(a.bytes[m], k);
            const Words pairs = *reinterpret_cast<const Words*>(b.bytes[k]);
            __asm__ volatile("vfmadd231ps %2, %1, %0"
                             : "+v"(even)
                             : "v"(Words{} + (pair << 16)), "v"(pairs << 16));
            __asm__ volatile("vfmadd231ps %2, %1, %0"
                             : "+v"(odd)
                             : "v"(Words{} + (pair & odd_half)), "v"(pairs & odd_half));
        }
        auto& sum = *reinterpret_cast<Words*>(result.bytes[m]);
        __asm__ volatile("vaddps %1, %0, %0" : "+v"(even) : "v"(odd));
        __asm__ volatile("vaddps %1, %0, %0" : "+v"(sum) : "v"(even));
    }
    _mm_setcsr(before);
    zero_behind_columns(result);
}

DLPRIM_AVX512 void add_int8_product(Tile& result, const Tile& a, const Tile& b, bool a_signed,
                                    bool b_signed) {
    for (int k = 0; k < b.rows; ++k) {
        for (int i = 0; i < 4; ++i) {
            const Words top = *reinterpret_cast<const Words*>(b.bytes[k]) << (24 - 8 * i);
            const Words bytes = b_signed ? (Words)((SignedWords)top >> 24) : top >> 24;
            for (int m = 0; m < result.rows; ++m) {
                const std::int32_t byte = widened_byte(word_at(a.bytes[m], k), i, a_signed);
                *reinterpret_cast<Words*>(result.bytes[m]) +=
                    bytes * static_cast<std::uint32_t>(byte);
            }
        }
    }
}

}  // namespace dlprim::testing
