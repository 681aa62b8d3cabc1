// Transposition in registers, of squares of 32-bit or 64-bit elements with a vector for each row,
// for the files that are compiled once per vector width.
#if defined(DLPRIM_PRIMITIVES_TRANSPOSE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef DLPRIM_PRIMITIVES_TRANSPOSE_INL_H
#undef DLPRIM_PRIMITIVES_TRANSPOSE_INL_H
#else
#define DLPRIM_PRIMITIVES_TRANSPOSE_INL_H
#endif

#include <cstdint>

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "primitives/tensor/bfloat16-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dlprim {
namespace HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR

// Rows that are read side by side are more streams than hardware follows, or end too soon. What is
// behind the end of a row is fetched in vain.
constexpr std::int64_t kBytesAhead = 512;

HWY_INLINE void prefetch_row(const void* src) {
    hwy::Prefetch(static_cast<const char*>(src) + kBytesAhead);
}

// Elements in a block of 128 bits, within which vectors interleave.
template <class D>
inline constexpr std::int64_t kBlockLanes =
    static_cast<std::int64_t>(kSmallestVector / sizeof(hn::TFromD<D>));

// Transposes the square in every 128-bit block of as many vectors as a block has elements.
template <class D>
HWY_INLINE void transpose_in_blocks(D d, Vector<D>* rows) {
    if constexpr (kBlockLanes<D> == 2) {
        const auto first = hn::InterleaveLower(d, rows[0], rows[1]);
        rows[1] = hn::InterleaveUpper(d, rows[0], rows[1]);
        rows[0] = first;
    } else {
        static_assert(kBlockLanes<D> == 4);
        const auto even_low = hn::InterleaveLower(d, rows[0], rows[2]);
        const auto odd_low = hn::InterleaveLower(d, rows[1], rows[3]);
        const auto even_high = hn::InterleaveUpper(d, rows[0], rows[2]);
        const auto odd_high = hn::InterleaveUpper(d, rows[1], rows[3]);
        rows[0] = hn::InterleaveLower(d, even_low, odd_low);
        rows[1] = hn::InterleaveUpper(d, even_low, odd_low);
        rows[2] = hn::InterleaveLower(d, even_high, odd_high);
        rows[3] = hn::InterleaveUpper(d, even_high, odd_high);
    }
}

// Exchanges the upper half of `low` with the lower half of `high`.
template <class D>
HWY_INLINE void exchange_halves(D d, Vector<D>& low, Vector<D>& high) {
    const auto lower = hn::ConcatLowerLower(d, high, low);
    high = hn::ConcatUpperUpper(d, high, low);
    low = lower;
}

// Exchanges the odd 128-bit blocks of `even` with the even ones of `odd`.
template <class V>
HWY_INLINE void exchange_blocks(V& even, V& odd) {
    const auto first = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(odd), even);
    odd = hn::OddEvenBlocks(odd, hn::SwapAdjacentBlocks(even));
    even = first;
}

// Transposes a square, first within blocks, then the blocks.
template <class D>
HWY_INLINE void transpose_square(D d, Vector<D>* rows) {
    constexpr std::int64_t n = lanes<D>;
    constexpr std::int64_t block = kBlockLanes<D>;
    for (std::int64_t i = 0; i < n; i += block) transpose_in_blocks(d, rows + i);
    for (std::int64_t i = 0; i < block; ++i) {
        if constexpr (n == 2 * block) exchange_halves(d, rows[i], rows[i + block]);
        if constexpr (n == 4 * block) {
            exchange_halves(d, rows[i], rows[i + 2 * block]);
            exchange_halves(d, rows[i + block], rows[i + 3 * block]);
            exchange_blocks(rows[i], rows[i + block]);
            exchange_blocks(rows[i + 2 * block], rows[i + 3 * block]);
        }
    }
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace dlprim
HWY_AFTER_NAMESPACE();

#endif
