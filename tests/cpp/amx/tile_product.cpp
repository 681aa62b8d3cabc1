#include "amx/tile_product.h"

#include <cstring>

#include <xmmintrin.h>

#define DLPRIM_AVX512 __attribute__((target("avx512f")))

namespace dlprim::testing {
namespace {

using Words = std::uint32_t __attribute__((vector_size(64), may_alias));
using SignedWords = std::int32_t __attribute__((vector_size(64), may_alias));

const Words& words_of(const std::uint8_t* row) { return *reinterpret_cast<const Words*>(row); }

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
            const std::uint32_t pair = words_of(a.bytes[m])[k];
            const Words& pairs = words_of(b.bytes[k]);
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
        // A number times the zeros behind the columns may be NaN.
        std::memset(result.bytes[m] + result.row_bytes, 0,
                    static_cast<std::size_t>(Tile::kMostRowBytes - result.row_bytes));
    }
    _mm_setcsr(before);
}

DLPRIM_AVX512 void add_int8_product(Tile& result, const Tile& a, const Tile& b, bool a_signed,
                                    bool b_signed) {
    for (int k = 0; k < b.rows; ++k) {
        for (int i = 0; i < 4; ++i) {
            const Words top = words_of(b.bytes[k]) << (24 - 8 * i);
            const Words column = b_signed ? (Words)((SignedWords)top >> 24) : top >> 24;
            for (int m = 0; m < result.rows; ++m) {
                const std::uint8_t byte = a.bytes[m][4 * k + i];
                const int element = a_signed ? static_cast<std::int8_t>(byte) : byte;
                *reinterpret_cast<Words*>(result.bytes[m]) +=
                    column * static_cast<std::uint32_t>(element);
            }
        }
    }
}

}  // namespace dlprim::testing
