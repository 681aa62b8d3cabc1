// Compiled once per target, as per_isa.h describes. Two-byte elements are never shuffled on their
// own: neighbouring rows are interleaved to words, or pairs of words brought in order, and what
// then is transposed are 32-bit and 64-bit elements.
#include "primitives/tensor/transpose_halves.h"

#include <algorithm>
#include <cstdint>

#include "primitives/tensor/partition.h"
#include "primitives/tensor/per_isa.h"

#define HWY_TARGET_INCLUDE "primitives/tensor/transpose_halves.cpp"
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "primitives/tensor/bfloat16-inl.h"
#include "primitives/tensor/transpose-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace dlprim {
namespace HWY_NAMESPACE {
namespace {

using Half = std::uint16_t;

const Half* src_of(const Transposition& matrix) { return static_cast<const Half*>(matrix.src); }

Half* dst_of(const Transposition& matrix) { return static_cast<Half*>(matrix.dst); }

// Each of these is a way to transpose: `tile` a square with as many rows as vectors of D have
// units, `singly` any part, in units.

struct Plain {
    static constexpr std::int64_t kUnit = 1;  // elements

    static void singly(const Transposition& matrix, Range rows, Range columns) {
        for (std::int64_t column = columns.begin; column < columns.end; ++column) {
            Half* const dst = dst_of(matrix) + column * matrix.ld_dst;
            for (std::int64_t row = rows.begin; row < rows.end; ++row) {
                dst[row] = src_of(matrix)[row * matrix.ld_src + column];
            }
        }
    }

#if HWY_TARGET != HWY_SCALAR
    // Interleaved, a pair of rows is two vectors of words: of the lower and of the upper columns
    // in every block. Each half of the columns takes half of the registers.
    template <bool upper, class D>
    static HWY_INLINE void half_tile(D d, const Half* src, std::int64_t ld_src, Half* dst,
                                     std::int64_t ld_dst) {
        const hn::RepartitionToWide<D> words;
        constexpr std::int64_t pairs = lanes<D> / 2;
        Vector<decltype(words)> square[pairs];
        for (std::int64_t i = 0; i < pairs; ++i) {
            const auto even = hn::LoadU(d, src + 2 * i * ld_src);
            const auto odd = hn::LoadU(d, src + (2 * i + 1) * ld_src);
            square[i] = hn::BitCast(words, upper ? hn::InterleaveUpper(d, even, odd)
                                                 : hn::InterleaveLower(d, even, odd));
        }
        transpose_square(words, square);
        for (std::int64_t i = 0; i < pairs; ++i) {
            const std::int64_t column = i / 4 * 8 + (upper ? 4 : 0) + i % 4;
            hn::StoreU(hn::BitCast(d, square[i]), d, dst + column * ld_dst);
        }
    }

    template <class D>
    static HWY_INLINE void tile(D d, const Transposition& matrix, std::int64_t row,
                                std::int64_t column) {
        const Half* const src = src_of(matrix) + row * matrix.ld_src + column;
        Half* const dst = dst_of(matrix) + column * matrix.ld_dst + row;
        half_tile<false>(d, src, matrix.ld_src, dst, matrix.ld_dst);
        half_tile<true>(d, src, matrix.ld_src, dst, matrix.ld_dst);
    }
#endif
};

// From pairs of rows to pairs of columns. Two neighbouring words hold a square of 2 x 2 elements,
// a unit: exchanging its middle elements transposes it.
struct Paired {
    static constexpr std::int64_t kUnit = 2;

    static void singly(const Transposition& matrix, Range rows, Range columns) {
        const std::int64_t last_row = std::min(rows.end * kUnit, matrix.rows);
        for (std::int64_t pair = columns.begin; pair < columns.end; ++pair) {
            Half* const dst = dst_of(matrix) + pair * matrix.ld_dst * 2;
            const bool full = 2 * pair + 1 < matrix.columns;
            for (std::int64_t row = rows.begin * kUnit; row < last_row; ++row) {
                const Half* const src =
                    src_of(matrix) + (row / 2 * matrix.ld_src + 2 * pair) * 2 + row % 2;
                dst[2 * row] = src[0];
                dst[2 * row + 1] = full ? src[2] : Half{0};
            }
        }
    }

#if HWY_TARGET != HWY_SCALAR
    template <class D>
    static HWY_INLINE auto transposed_units(D d, const Half* src) {
        alignas(16) static constexpr std::uint8_t kOrder[16] = {0, 1, 4,  5,  2,  3,  6,  7,
                                                                8, 9, 12, 13, 10, 11, 14, 15};
        const hn::Repartition<std::uint8_t, D> bytes;
        const auto units = hn::BitCast(bytes, hn::LoadU(d, src));
        return hn::TableLookupBytes(units, hn::LoadDup128(bytes, kOrder));
    }

    template <class D>
    static HWY_INLINE void tile(D d, const Transposition& matrix, std::int64_t row,
                                std::int64_t column) {
        const hn::Repartition<std::uint64_t, D> units;
        constexpr std::int64_t n = lanes<decltype(units)>;
        const Half* const src = src_of(matrix) + (row * matrix.ld_src + 2 * column) * 2;
        Half* const dst = dst_of(matrix) + (column * matrix.ld_dst + 2 * row) * 2;
        Vector<decltype(units)> square[n];
        for (std::int64_t i = 0; i < n; ++i) {
            square[i] = hn::BitCast(units, transposed_units(d, src + i * matrix.ld_src * 2));
        }
        transpose_square(units, square);
        for (std::int64_t i = 0; i < n; ++i) {
            hn::StoreU(hn::BitCast(d, square[i]), d, dst + i * matrix.ld_dst * 2);
        }
    }
#endif
};

#if HWY_TARGET != HWY_SCALAR
// The last tiles overlap those before them; what is narrower than a tile takes smaller ones. The
// longer side is the inner loop: few long streams on the side of the rows that are far apart, which
// hardware prefetches, while the other side is in the cache.
template <class Way, class D>
void in_tiles(D d, const Transposition& matrix, std::int64_t rows, std::int64_t columns) {
    constexpr std::int64_t n = lanes<D> / (Way::kUnit * Way::kUnit);
    const std::int64_t outer = std::min(rows, columns), inner = std::max(rows, columns);
    if (outer >= n) {
        for (std::int64_t i = 0; i < outer; i += n) {
            const std::int64_t short_side = std::min(i, outer - n);
            for (std::int64_t j = 0; j < inner; j += n) {
                const std::int64_t long_side = std::min(j, inner - n);
                Way::tile(d, matrix, rows < columns ? short_side : long_side,
                          rows < columns ? long_side : short_side);
            }
        }
    } else if constexpr (can_be_halved<D>) {
        in_tiles<Way>(hn::Half<D>(), matrix, rows, columns);
    } else {
        Way::singly(matrix, {0, rows}, {0, columns});
    }
}
#endif

template <class Way>
void transpose_by(const Transposition& matrix) {
    const std::int64_t rows = matrix.rows / Way::kUnit, columns = matrix.columns / Way::kUnit;
#if HWY_TARGET != HWY_SCALAR
    in_tiles<Way>(hn::ScalableTag<Half>(), matrix, rows, columns);
#else
    Way::singly(matrix, {0, rows}, {0, columns});
#endif
    if constexpr (Way::kUnit > 1) {
        const std::int64_t all_rows = (matrix.rows + 1) / 2, all_columns = (matrix.columns + 1) / 2;
        Way::singly(matrix, {rows, all_rows}, {0, columns});
        Way::singly(matrix, {0, all_rows}, {columns, all_columns});
    }
}

HalfFunctions functions() { return {transpose_by<Plain>, transpose_by<Paired>}; }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dlprim
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dlprim {

HalfFunctions half_functions(Isa isa) { return DLPRIM_FOR_ISA(isa, functions)(); }

}  // namespace dlprim
#endif
