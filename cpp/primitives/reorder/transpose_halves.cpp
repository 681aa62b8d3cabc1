// Compiled once per target, as per_isa.h describes.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "primitives/reorder/transpose_tiles.h"
#include "primitives/tensor/partition.h"
#include "primitives/tensor/per_isa.h"

#define HWY_TARGET_INCLUDE "primitives/reorder/transpose_halves.cpp"
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "primitives/tensor/bfloat16-inl.h"
#include "primitives/reorder/transpose-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace dlprim {
namespace HWY_NAMESPACE {
namespace {

using Word = std::uint32_t;
using Half = std::uint16_t;

#if HWY_TARGET != HWY_SCALAR

// Two-byte elements are never shuffled on their own: neighbouring rows are interleaved to words.
// Interleaved, a pair of rows is two vectors of words: of the lower and of the upper columns in
// every block. Each half of the columns takes half of the registers. `From` is Line where neither
// side has a period.
template <bool upper, class From, class D>
HWY_INLINE void half_tile(D d, const Transposition& it, std::int64_t row, std::int64_t column) {
    const hn::RepartitionToWide<D> words;
    constexpr std::int64_t pairs = lanes<D> / 2;
    const char* const src = it.src + column * 2;
    Vector<decltype(words)> square[pairs];
    From from(it.src_rows, row);
    for (std::int64_t i = 0; i < pairs; ++i) {
        const auto even = hn::LoadU(d, reinterpret_cast<const Half*>(src + from.next()));
        const auto odd = hn::LoadU(d, reinterpret_cast<const Half*>(src + from.next()));
        square[i] = hn::BitCast(
            words, upper ? hn::InterleaveUpper(d, even, odd) : hn::InterleaveLower(d, even, odd));
    }
    transpose_square(words, square);
    char* const dst = it.dst + row * 2;
    const Places to = it.dst_rows;
    for (std::int64_t i = 0; i < pairs; ++i) {
        const std::int64_t at = column + i / 4 * 8 + (upper ? 4 : 0) + i % 4;
        const std::int64_t bytes = std::is_same_v<From, Line> ? at * to.near : to.at(at);
        hn::StoreU(hn::BitCast(d, square[i]), d, reinterpret_cast<Half*>(dst + bytes));
    }
}

template <class From, class D>
bool halves_in_tiles(D d, const Transposition& it) {
    constexpr std::int64_t n = lanes<D>;
    if (std::min(it.rows, it.columns) >= n) {
        for_tiles(n, it.rows, it.columns, d, [&](std::int64_t row, std::int64_t column) HWY_ATTR {
            half_tile<false, From>(d, it, row, column);
            half_tile<true, From>(d, it, row, column);
        });
        return true;
    }
    if constexpr (can_be_halved<D>) return halves_in_tiles<From>(hn::Half<D>(), it);
    return false;
}

#endif

void transpose_halves(const Transposition& it) {
#if HWY_TARGET != HWY_SCALAR
    const hn::ScalableTag<Half> d;
    const bool lines = is_line(it.src_rows) && is_line(it.dst_rows);
    if (lines ? halves_in_tiles<Line>(d, it) : halves_in_tiles<Walk>(d, it)) return;
#endif
    for (std::int64_t column = 0; column < it.columns; ++column) {
        char* const dst = it.dst + it.dst_rows.at(column);
        for (std::int64_t row = 0; row < it.rows; ++row) {
            const Half bits = half_at(it.src + it.src_rows.at(row), column);
            std::memcpy(dst + row * 2, &bits, sizeof bits);
        }
    }
}

// Two neighbouring words hold a square of 2 x 2 elements, a unit: exchanging its middle elements
// transposes it, and units are what is transposed.

void pairs_singly(const Transposition& it, Range rows, Range columns) {
    const std::int64_t last_row = std::min(rows.end * 2, it.rows);
    for (std::int64_t pair = columns.begin; pair < columns.end; ++pair) {
        char* const dst = it.dst + it.dst_rows.at(pair);
        const bool full = 2 * pair + 1 < it.columns;
        for (std::int64_t row = rows.begin * 2; row < last_row; ++row) {
            const char* const src = it.src + it.src_rows.at(row / 2) + (4 * pair + row % 2) * 2;
            const Half bits[2] = {half_at(src, 0), full ? half_at(src, 2) : Half{0}};
            std::memcpy(dst + row * kWordBytes, bits, sizeof bits);
        }
    }
}

#if HWY_TARGET != HWY_SCALAR

template <class D>
HWY_INLINE auto transposed_units(D d, const char* src) {
    alignas(16) static constexpr std::uint8_t kOrder[16] = {0, 1, 4,  5,  2,  3,  6,  7,
                                                            8, 9, 12, 13, 10, 11, 14, 15};
    const hn::Repartition<std::uint8_t, D> bytes;
    const auto units = hn::LoadU(bytes, reinterpret_cast<const std::uint8_t*>(src));
    return hn::BitCast(d, hn::TableLookupBytes(units, hn::LoadDup128(bytes, kOrder)));
}

// `it` has no periods on either side. What a tile needs of it is copied, because a store to bytes
// could change any other.
template <class D>
bool pairs_in_tiles(D d, const Transposition& it, std::int64_t rows, std::int64_t columns) {
    constexpr std::int64_t n = lanes<D>;
    constexpr std::int64_t unit = 2 * kWordBytes;
    if (std::min(rows, columns) >= n) {
        const char* const src = it.src;
        char* const dst = it.dst;
        const std::int64_t src_row = it.src_rows.near, dst_row = it.dst_rows.near;
        for_tiles(n, rows, columns, d, [=](std::int64_t row, std::int64_t column) HWY_ATTR {
            const char* const from = src + row * src_row + column * unit;
            char* const to = dst + column * dst_row + row * unit;
            Vector<D> square[n];
            for (std::int64_t i = 0; i < n; ++i) {
                square[i] = transposed_units(d, from + i * src_row);
            }
            transpose_square(d, square);
            for (std::int64_t i = 0; i < n; ++i) {
                hn::StoreU(square[i], d, reinterpret_cast<std::uint64_t*>(to + i * dst_row));
            }
        });
        return true;
    }
    if constexpr (can_be_halved<D>) return pairs_in_tiles(hn::Half<D>(), it, rows, columns);
    return false;
}

#endif

void transpose_pairs(const Transposition& it) {
    const std::int64_t all_rows = (it.rows + 1) / 2, all_columns = (it.columns + 1) / 2;
    std::int64_t rows = 0, columns = 0;
#if HWY_TARGET != HWY_SCALAR
    const bool lines = is_line(it.src_rows) && is_line(it.dst_rows);
    if (lines &&
        pairs_in_tiles(hn::ScalableTag<std::uint64_t>(), it, it.rows / 2, it.columns / 2)) {
        rows = it.rows / 2;
        columns = it.columns / 2;
    }
#endif
    pairs_singly(it, {rows, all_rows}, {0, columns});
    pairs_singly(it, {0, all_rows}, {columns, all_columns});
}

// Both of these move triples: `single` one, `vector` as many as D has lanes.

template <class Lane>
struct Join {
    const Lane* src;
    std::int64_t ld;
    Lane* dst;
    std::int64_t triples;

    explicit Join(const Transposition& it)
        : src(reinterpret_cast<const Lane*>(it.src)),
          ld(it.src_rows.near / static_cast<std::int64_t>(sizeof(Lane))),
          dst(reinterpret_cast<Lane*>(it.dst)),
          triples(it.columns) {}

    void single(std::int64_t i) const {
        for (std::int64_t row = 0; row < 3; ++row) dst[3 * i + row] = src[row * ld + i];
    }

#if HWY_TARGET != HWY_SCALAR
    template <class D>
    HWY_INLINE void vector(D d, std::int64_t i) const {
        hn::StoreInterleaved3(hn::LoadU(d, src + i), hn::LoadU(d, src + ld + i),
                              hn::LoadU(d, src + 2 * ld + i), d, dst + 3 * i);
    }
#endif
};

template <class Lane>
struct Split {
    const Lane* src;
    Lane* dst;
    std::int64_t ld;
    std::int64_t triples;

    explicit Split(const Transposition& it)
        : src(reinterpret_cast<const Lane*>(it.src)),
          dst(reinterpret_cast<Lane*>(it.dst)),
          ld(it.dst_rows.near / static_cast<std::int64_t>(sizeof(Lane))),
          triples(it.rows) {}

    void single(std::int64_t i) const {
        for (std::int64_t row = 0; row < 3; ++row) dst[row * ld + i] = src[3 * i + row];
    }

#if HWY_TARGET != HWY_SCALAR
    template <class D>
    HWY_INLINE void vector(D d, std::int64_t i) const {
        Vector<D> first, second, third;
        hn::LoadInterleaved3(d, src + 3 * i, first, second, third);
        hn::StoreU(first, d, dst + i);
        hn::StoreU(second, d, dst + ld + i);
        hn::StoreU(third, d, dst + 2 * ld + i);
    }
#endif
};

// The last vector overlaps the one before it.
template <class Lane, template <class> class Way>
void move_triples(const Transposition& it) {
    const Way<Lane> way(it);
#if HWY_TARGET != HWY_SCALAR
    const hn::ScalableTag<Lane> d;
    constexpr std::int64_t n = lanes<decltype(d)>;
    if (way.triples >= n) {
        std::int64_t i = 0;
        for (; i + n <= way.triples; i += n) way.vector(d, i);
        if (i < way.triples) way.vector(d, way.triples - n);
        return;
    }
#endif
    for (std::int64_t i = 0; i < way.triples; ++i) way.single(i);
}

TransposeFunction function(Transposing way, std::int64_t element) {
    const bool narrow = element == 2;
    if (way == Transposing::halves) return transpose_halves;
    if (way == Transposing::pairs) return transpose_pairs;
    if (way == Transposing::join_three) {
        return narrow ? move_triples<Half, Join> : move_triples<Word, Join>;
    }
    return narrow ? move_triples<Half, Split> : move_triples<Word, Split>;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dlprim
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dlprim {

TransposeFunction transpose_function(Isa isa, Transposing way, std::int64_t element) {
    if (way <= Transposing::rounded_tap_pairs) return word_function(isa, way);
    return DLPRIM_FOR_ISA(isa, function)(way, element);
}

}  // namespace dlprim
#endif
