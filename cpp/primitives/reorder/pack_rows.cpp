// Compiled once per target, as per_isa.h describes.
#include "primitives/reorder/pack_rows.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

#include "primitives/tensor/per_isa.h"

#define HWY_TARGET_INCLUDE "primitives/reorder/pack_rows.cpp"
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "primitives/tensor/bfloat16-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace dlprim {
namespace HWY_NAMESPACE {
namespace {

// Each of these does columns of one row of the result: `vector` as many as D has lanes, `single`
// one. A row of the storage that does not exist is null and counts as zeros.

struct Pairs {
    using Lane = std::uint16_t;
    const Lane* even;
    const Lane* odd;
    Lane* dst;

    void single(std::int64_t column) const {
        dst[2 * column] = even[column];
        dst[2 * column + 1] = odd == nullptr ? Lane{0} : odd[column];
    }

#if HWY_TARGET != HWY_SCALAR
    template <class D>
    HWY_INLINE void vector(D d, std::int64_t column) const {
        const auto second = odd == nullptr ? hn::Zero(d) : hn::LoadU(d, odd + column);
        hn::StoreInterleaved2(hn::LoadU(d, even + column), second, d, dst + 2 * column);
    }
#endif
};

struct Quads {
    using Lane = std::uint8_t;
    std::array<const Lane*, 4> rows;
    Lane* dst;

    void single(std::int64_t column) const {
        for (std::size_t i = 0; i < 4; ++i) {
            dst[4 * column + static_cast<std::int64_t>(i)] =
                rows[i] == nullptr ? Lane{0} : rows[i][column];
        }
    }

#if HWY_TARGET != HWY_SCALAR
    template <class D>
    HWY_INLINE Vector<D> load(D d, std::size_t row, std::int64_t column) const {
        return rows[row] == nullptr ? hn::Zero(d) : hn::LoadU(d, rows[row] + column);
    }

    template <class D>
    HWY_INLINE void vector(D d, std::int64_t column) const {
        hn::StoreInterleaved4(load(d, 0, column), load(d, 1, column), load(d, 2, column),
                              load(d, 3, column), d, dst + 4 * column);
    }
#endif
};

struct RoundedPairs {
    using Lane = std::uint32_t;
    const float* even;
    const float* odd;
    std::uint16_t* dst;

    void single(std::int64_t column) const {
        dst[2 * column] = rounded_to_half(even[column]);
        dst[2 * column + 1] = odd == nullptr ? std::uint16_t{0} : rounded_to_half(odd[column]);
    }

#if HWY_TARGET != HWY_SCALAR
    template <class D>
    HWY_INLINE void vector(D d, std::int64_t column) const {
        const hn::Repartition<std::uint16_t, D> halves;
        auto words = hn::ShiftRight<16>(rounded(d, even + column));
        if (odd != nullptr) {
            words = hn::Or(words, hn::And(rounded(d, odd + column), hn::Set(d, 0xffff0000)));
        }
        hn::StoreU(hn::BitCast(halves, words), halves, dst + 2 * column);
    }
#endif
};

struct Rounded {
    using Lane = std::uint16_t;
    const float* src;
    Lane* dst;

    void single(std::int64_t i) const { dst[i] = rounded_to_half(src[i]); }

#if HWY_TARGET != HWY_SCALAR
    template <class D>
    HWY_INLINE void vector(D d, std::int64_t i) const {
        hn::StoreU(rounded_to_halves(d, src + i), d, dst + i);
    }
#endif
};

struct Widened {
    using Lane = std::uint32_t;
    const std::uint16_t* src;
    float* dst;

    void single(std::int64_t i) const {
        dst[i] = std::bit_cast<float>(static_cast<std::uint32_t>(src[i]) << 16);
    }

#if HWY_TARGET != HWY_SCALAR
    template <class D>
    HWY_INLINE void vector(D d, std::int64_t i) const {
        const hn::RebindToFloat<D> floats;
        const auto low = hn::PromoteTo(d, hn::LoadU(hn::Rebind<std::uint16_t, D>(), src + i));
        hn::StoreU(hn::BitCast(floats, hn::ShiftLeft<16>(low)), floats, dst + i);
    }
#endif
};

#if HWY_TARGET != HWY_SCALAR
// The last vector overlaps the one before it; what is shorter than a vector takes shorter ones.
template <class D, class Row>
void along_vectors(D d, const Row& row, std::int64_t columns) {
    if (columns >= lanes<D>) {
        std::int64_t i = 0;
        for (; i + lanes<D> <= columns; i += lanes<D>) row.vector(d, i);
        if (i < columns) row.vector(d, columns - lanes<D>);
    } else if constexpr (can_be_halved<D>) {
        along_vectors(hn::Half<D>(), row, columns);
    } else {
        for (std::int64_t i = 0; i < columns; ++i) row.single(i);
    }
}
#endif

template <class Row>
void along(const Row& row, std::int64_t columns) {
#if HWY_TARGET != HWY_SCALAR
    along_vectors(hn::ScalableTag<typename Row::Lane>(), row, columns);
#else
    for (std::int64_t i = 0; i < columns; ++i) row.single(i);
#endif
}

// Row `row` of the storage, null beyond the last one.
template <class Element>
const Element* row_of(const Packing& packing, std::int64_t row) {
    if (row >= packing.k) return nullptr;
    return static_cast<const Element*>(packing.src) + row * packing.ld_src;
}

// The row of groups that begins with row `row` of the storage.
void pack_group(const Packing& packing, std::int64_t row) {
    const std::int64_t group = elements_per_word(packing.to);
    char* const dst = static_cast<char*>(packing.dst) + row / group * packing.ld_dst * kWordBytes;
    if (group == 1) {
        std::memcpy(dst, row_of<float>(packing, row),
                    static_cast<std::size_t>(packing.n * kWordBytes));
    } else if (group == 4) {
        using Byte = Quads::Lane;
        along(Quads{{row_of<Byte>(packing, row), row_of<Byte>(packing, row + 1),
                     row_of<Byte>(packing, row + 2), row_of<Byte>(packing, row + 3)},
                    reinterpret_cast<Byte*>(dst)},
              packing.n);
    } else {
        along(RoundedPairs{row_of<float>(packing, row), row_of<float>(packing, row + 1),
                           reinterpret_cast<std::uint16_t*>(dst)},
              packing.n);
    }
}

// Storage in pairs of rows, and where they go.
struct PairRows {
    const Pairs::Lane* even;
    std::int64_t ld_src;
    Pairs::Lane* dst;
    std::int64_t ld_dst;
    std::int64_t columns;

    void next() {
        even += 2 * ld_src;
        dst += 2 * ld_dst;
    }
};

#if HWY_TARGET != HWY_SCALAR
// Rows of kVectors whole vectors. They are short, so that a call or a test for each would take as
// long as moving it.
template <std::int64_t kVectors>
void pack_short_rows(PairRows rows, std::int64_t pairs) {
    constexpr hn::ScalableTag<Pairs::Lane> d;
    constexpr std::int64_t n = lanes<decltype(d)>;
    for (std::int64_t pair = 0; pair < pairs; ++pair, rows.next()) {
        const auto* const odd = rows.even + rows.ld_src;
        for (std::int64_t i = 0; i < kVectors; ++i) {
            hn::StoreInterleaved2(hn::LoadU(d, rows.even + i * n), hn::LoadU(d, odd + i * n), d,
                                  rows.dst + 2 * i * n);
        }
    }
}
#endif

void pack_pairs_of_rows(PairRows rows, std::int64_t pairs) {
#if HWY_TARGET != HWY_SCALAR
    constexpr std::int64_t n = lanes<hn::ScalableTag<Pairs::Lane>>;
    if (rows.columns == n) return pack_short_rows<1>(rows, pairs);
    if (rows.columns == 2 * n) return pack_short_rows<2>(rows, pairs);
    if (rows.columns == 4 * n) return pack_short_rows<4>(rows, pairs);
#endif
    for (std::int64_t pair = 0; pair < pairs; ++pair, rows.next()) {
        along(Pairs{rows.even, rows.even + rows.ld_src, rows.dst}, rows.columns);
    }
}

void pack_pairs(const Packing& packing, Range rows) {
    using Lane = Pairs::Lane;
    PairRows from{static_cast<const Lane*>(packing.src) + rows.begin * packing.ld_src,
                  packing.ld_src, static_cast<Lane*>(packing.dst) + rows.begin * packing.ld_dst,
                  packing.ld_dst, packing.n};
    const std::int64_t count = std::min(rows.end, packing.k) - rows.begin;
    pack_pairs_of_rows(from, count / 2);
    if (count % 2 == 0) return;
    const std::int64_t last = rows.begin + count - 1;
    along(Pairs{static_cast<const Lane*>(packing.src) + last * packing.ld_src, nullptr,
                static_cast<Lane*>(packing.dst) + last * packing.ld_dst},
          packing.n);
}

void pack(const Packing& packing, Range rows) {
    if (packing.from == DType::bf16 && packing.to == DType::bf16) return pack_pairs(packing, rows);
    const std::int64_t group = elements_per_word(packing.to);
    for (std::int64_t row = rows.begin; row < rows.end; row += group) pack_group(packing, row);
}

void round(const float* src, std::uint16_t* dst, std::int64_t count) {
    along(Rounded{src, dst}, count);
}

void widen(const std::uint16_t* src, float* dst, std::int64_t count) {
    along(Widened{src, dst}, count);
}

RowFunctions functions() { return {pack, round, widen}; }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dlprim
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dlprim {

RowFunctions row_functions(Isa isa) { return DLPRIM_FOR_ISA(isa, functions)(); }

}  // namespace dlprim
#endif
