// Packing of transposed storage, where a group lies in one 32-bit word already: whatever the type,
// it is the transposition of a matrix of words. Compiled once per target, as per_isa.h describes.
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "primitives/tensor/pack_rows.h"
#include "primitives/tensor/per_isa.h"

#define HWY_TARGET_INCLUDE "primitives/tensor/transpose_rows.cpp"
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

// Both of these give the words of one row of the storage: `single` one, `vector` as many as D has
// lanes, `last` the one that is not full, its rest zeros.

struct Stored {
    static constexpr std::int64_t kBytes = 4;  // of a word

    const char* row;
    std::int64_t bytes;  // of the row

    static Stored at(const Packing& packing, std::int64_t row) {
        const std::int64_t element = size_of(packing.from);
        return {static_cast<const char*>(packing.src) + row * packing.ld_src * element,
                packing.k * element};
    }

    std::uint32_t single(std::int64_t word) const {
        std::uint32_t bits = 0;
        std::memcpy(&bits, row + word * kWordBytes, sizeof bits);
        return bits;
    }

    std::uint32_t last() const {
        const std::int64_t rest = bytes % kWordBytes;
        std::uint32_t bits = 0;
        std::memcpy(&bits, row + bytes - rest, static_cast<std::size_t>(rest));
        return bits;
    }

#if HWY_TARGET != HWY_SCALAR
    template <class D>
    HWY_INLINE Vector<D> vector(D d, std::int64_t word) const {
        const hn::Repartition<std::uint8_t, D> unaligned;
        const char* src = row + word * kWordBytes;
        return hn::BitCast(d, hn::LoadU(unaligned, reinterpret_cast<const std::uint8_t*>(src)));
    }
#endif
};

struct RoundedOnTheWay {
    static constexpr std::int64_t kBytes = 8;

    const float* row;
    std::int64_t elements;  // of the row

    static RoundedOnTheWay at(const Packing& packing, std::int64_t row) {
        return {static_cast<const float*>(packing.src) + row * packing.ld_src, packing.k};
    }

    std::uint32_t single(std::int64_t word) const {
        return rounded_to_half(row[2 * word]) | (rounded(row[2 * word + 1]) & 0xffff0000);
    }

    std::uint32_t last() const { return rounded_to_half(row[elements - 1]); }

#if HWY_TARGET != HWY_SCALAR
    template <class D>
    HWY_INLINE Vector<D> vector(D d, std::int64_t word) const {
        const hn::Repartition<std::uint16_t, D> halves;
        return hn::BitCast(d, rounded_to_halves(halves, row + 2 * word));
    }
#endif
};

// The same of rows that are in memory.
template <class Words>
struct Fetched : Words {
    static Fetched at(const Packing& packing, std::int64_t row) {
        return {Words::at(packing, row)};
    }

#if HWY_TARGET != HWY_SCALAR
    template <class D>
    HWY_INLINE Vector<D> vector(D d, std::int64_t word) const {
        constexpr std::int64_t line = 64;
        const char* const src = reinterpret_cast<const char*>(this->row) + word * Words::kBytes;
        for (std::int64_t i = 0; i < lanes<D> * Words::kBytes; i += line) prefetch_row(src + i);
        return Words::vector(d, word);
    }
#endif
};

// Where a word of the storage goes.
char* target(const Packing& packing, std::int64_t row, std::int64_t word) {
    return static_cast<char*>(packing.dst) + (word * packing.ld_dst + row) * kWordBytes;
}

template <class Words>
void transpose_singly(const Packing& packing, Range rows, Range words) {
    const std::int64_t step = packing.ld_dst * kWordBytes;
    for (std::int64_t row = rows.begin; row < rows.end; ++row) {
        const Words storage = Words::at(packing, row);
        char* dst = target(packing, row, words.begin);
        for (std::int64_t word = words.begin; word < words.end; ++word, dst += step) {
            const std::uint32_t bits = storage.single(word);
            std::memcpy(dst, &bits, sizeof bits);
        }
    }
}

#if HWY_TARGET != HWY_SCALAR

template <class D, class Words>
HWY_INLINE void transpose_tile(D d, const Packing& packing, std::int64_t row, std::int64_t word) {
    const hn::Repartition<std::uint8_t, D> unaligned;
    Vector<D> square[lanes<D>];
    for (std::int64_t i = 0; i < lanes<D>; ++i) {
        square[i] = Words::at(packing, row + i).vector(d, word);
    }
    transpose_square(d, square);
    for (std::int64_t i = 0; i < lanes<D>; ++i) {
        hn::StoreU(hn::BitCast(unaligned, square[i]), unaligned,
                   reinterpret_cast<std::uint8_t*>(target(packing, row, word + i)));
    }
}

// The last tiles overlap those before them; what is narrower than a tile takes smaller ones.
template <class D, class Words>
void transpose_in_tiles(D d, const Packing& packing, Range rows, Range words) {
    constexpr std::int64_t n = lanes<D>;
    if (std::min(rows.size(), words.size()) >= n) {
        for (std::int64_t row = rows.begin; row < rows.end; row += n) {
            for (std::int64_t word = words.begin; word < words.end; word += n) {
                transpose_tile<D, Words>(d, packing, std::min(row, rows.end - n),
                                         std::min(word, words.end - n));
            }
        }
    } else if constexpr (can_be_halved<D>) {
        transpose_in_tiles<hn::Half<D>, Words>({}, packing, rows, words);
    } else {
        transpose_singly<Words>(packing, rows, words);
    }
}

#endif

// A strip of the storage: as many words of a row as make a cache line, which so is used up before
// it is lost. Where rows are a power of two apart the cache holds few of them.
constexpr std::int64_t kStrip = 16;

template <class Words>
void transpose(const Packing& packing, Range rows) {
    const std::int64_t full = packing.k / elements_per_word(packing.to);
    const std::int64_t strips = std::max<std::int64_t>(full / kStrip, 1);
    for (std::int64_t i = 0; i < strips; ++i) {  // the remainder belongs to the last one
        const Range words{i * kStrip, i + 1 == strips ? full : (i + 1) * kStrip};
#if HWY_TARGET != HWY_SCALAR
        transpose_in_tiles<hn::ScalableTag<std::uint32_t>, Words>({}, packing, rows, words);
#else
        transpose_singly<Words>(packing, rows, words);
#endif
    }
    if (full * elements_per_word(packing.to) == packing.k) return;
    for (std::int64_t row = rows.begin; row < rows.end; ++row) {
        const std::uint32_t bits = Words::at(packing, row).last();
        std::memcpy(target(packing, row, full), &bits, sizeof bits);
    }
}

template <class Words>
void transpose_from(const Packing& packing, Range rows) {
    packing.from_memory ? transpose<Fetched<Words>>(packing, rows)
                        : transpose<Words>(packing, rows);
}

void transpose_any(const Packing& packing, Range rows) {
    if (packing.from == packing.to) {
        transpose_from<Stored>(packing, rows);
    } else {
        transpose_from<RoundedOnTheWay>(packing, rows);
    }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dlprim
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dlprim {

PackFunction transpose_function(Isa isa) { return DLPRIM_FOR_ISA(isa, transpose_any); }

}  // namespace dlprim
#endif
