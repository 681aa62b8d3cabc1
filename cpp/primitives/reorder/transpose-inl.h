// Transposition in registers, of squares of 32-bit or 64-bit elements with a vector for each row,
// for the files that are compiled once per vector width.
#if defined(DLPRIM_PRIMITIVES_TRANSPOSE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef DLPRIM_PRIMITIVES_TRANSPOSE_INL_H
#undef DLPRIM_PRIMITIVES_TRANSPOSE_INL_H
#else
#define DLPRIM_PRIMITIVES_TRANSPOSE_INL_H
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "primitives/reorder/transpose_tiles.h"
#include "primitives/tensor/bfloat16-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dlprim {
namespace HWY_NAMESPACE {

inline constexpr std::int64_t kLineBytes = 64;

// One row after the other of one side: without periods, and with any places.
class Line {
public:
    Line(const Places& places, std::int64_t row)
        : near_(places.near), offset_(row * places.near - places.near) {}

    std::int64_t next() { return offset_ += near_; }

private:
    std::int64_t near_;
    std::int64_t offset_;
};

class Walk {
public:
    Walk(const Places& places, std::int64_t row)
        : places_(places),
          offset_(places.at(row)),
          left_(places.period - (row < places.period ? row : row % places.period)) {}

    std::int64_t next() {
        const std::int64_t at = offset_;
        offset_ += places_.near;
        if (--left_ == 0) {
            left_ = places_.period;
            offset_ += places_.far - places_.period * places_.near;
        }
        return at;
    }

private:
    Places places_;  // a copy: a store to bytes could change any other
    std::int64_t offset_;
    std::int64_t left_;
};

inline bool is_line(const Places& places) {
    return places.period == std::numeric_limits<std::int64_t>::max();
}

inline std::uint16_t half_at(const char* src, std::int64_t index) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, src + index * 2, sizeof bits);
    return bits;
}

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

// body(first row, first column) for tiles of n x n. The last tiles overlap those before them. The
// longer side is the inner loop, in strips of a cache line of the other: few long streams on the
// side of the rows that are far apart, while the other side is in the cache.
template <class D, class Body>
HWY_INLINE void for_tiles(std::int64_t n, std::int64_t rows, std::int64_t columns, D /*d*/,
                          const Body& body) {
    constexpr std::int64_t strip = kLineBytes / static_cast<std::int64_t>(sizeof(hn::TFromD<D>));
    const std::int64_t outer = std::min(rows, columns), inner = std::max(rows, columns);
    const std::int64_t strips = std::max<std::int64_t>(outer / strip, 1);
    for (std::int64_t s = 0; s < strips; ++s) {  // the remainder belongs to the last one
        const std::int64_t first = s * strip, end = s + 1 == strips ? outer : first + strip;
        for (std::int64_t j = 0; j < inner; j += n) {
            for (std::int64_t i = first; i < end; i += n) {
                const std::int64_t short_side = std::min(i, outer - n);
                const std::int64_t long_side = std::min(j, inner - n);
                body(rows < columns ? short_side : long_side,
                     rows < columns ? long_side : short_side);
            }
        }
    }
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace dlprim
HWY_AFTER_NAMESPACE();

#endif
