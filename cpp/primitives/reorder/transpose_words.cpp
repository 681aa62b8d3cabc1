// Compiled once per target, as per_isa.h describes.
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "primitives/reorder/transpose_tiles.h"
#include "primitives/tensor/partition.h"
#include "primitives/tensor/per_isa.h"

#define HWY_TARGET_INCLUDE "primitives/reorder/transpose_words.cpp"
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

Half rounded_at(const char* src, std::int64_t index) {
    float value = 0;
    std::memcpy(&value, src + index * 4, sizeof value);
    return rounded_to_half(value);
}

// Each of these gives the words of one row of src: one, or as many as D has lanes.

struct Stored {
    static constexpr std::int64_t kBytes = 4;  // of a word

    static Word single(const Transposition& it, const char* row, std::int64_t word) {
        const std::int64_t left = it.columns * it.element - word * kWordBytes;
        Word bits = 0;
        if (left >= kWordBytes) {
            std::memcpy(&bits, row + word * kWordBytes, sizeof bits);
        } else {
            std::memcpy(&bits, row + word * kWordBytes, static_cast<std::size_t>(left));
        }
        return bits;
    }

#if HWY_TARGET != HWY_SCALAR
    template <class D>
    static HWY_INLINE Vector<D> vector(D d, const Transposition& /*it*/, const char* row) {
        const hn::Repartition<std::uint8_t, D> unaligned;
        return hn::BitCast(d, hn::LoadU(unaligned, reinterpret_cast<const std::uint8_t*>(row)));
    }
#endif
};

struct Rounded {
    static constexpr std::int64_t kBytes = 8;

    static Word single(const Transposition& it, const char* row, std::int64_t word) {
        const bool full = 2 * word + 1 < it.columns;
        const Word high = full ? rounded_at(row, 2 * word + 1) : 0;
        return rounded_at(row, 2 * word) | high << 16;
    }

#if HWY_TARGET != HWY_SCALAR
    template <class D>
    static HWY_INLINE Vector<D> vector(D d, const Transposition& /*it*/, const char* row) {
        const hn::Repartition<Half, D> halves;
        return hn::BitCast(d, rounded_to_halves(halves, reinterpret_cast<const float*>(row)));
    }
#endif
};

struct StoredTaps {
    static constexpr std::int64_t kBytes = 2;

    static Word single(const char* even, const char* odd) {
        return half_at(even, 0) | (odd == nullptr ? Word{0} : Word{half_at(odd, 0)} << 16);
    }

#if HWY_TARGET != HWY_SCALAR
    template <class D>
    static HWY_INLINE Vector<D> vector(D d, const Transposition& it, const char* row) {
        const hn::Rebind<Half, D> halves;
        const auto* const even = reinterpret_cast<const Half*>(row);
        const auto low = hn::PromoteTo(d, hn::LoadU(halves, even));
        const auto high = hn::PromoteTo(d, hn::LoadU(halves, even + it.taps));
        return hn::Or(low, hn::ShiftLeft<16>(high));
    }
#endif
};

struct RoundedTaps {
    static constexpr std::int64_t kBytes = 4;

    static Word single(const char* even, const char* odd) {
        return rounded_at(even, 0) | (odd == nullptr ? Word{0} : Word{rounded_at(odd, 0)} << 16);
    }

#if HWY_TARGET != HWY_SCALAR
    template <class D>
    static HWY_INLINE Vector<D> vector(D d, const Transposition& it, const char* row) {
        const auto* const even = reinterpret_cast<const float*>(row);
        const auto low = rounded(d, even), high = rounded(d, even + it.taps);
        return hn::Or(hn::ShiftRight<16>(low), hn::And(high, hn::Set(d, 0xffff0000)));
    }
#endif
};

#if HWY_TARGET != HWY_SCALAR

// A square of words, of which the first `count` columns are stored.
template <class Words, class From, class To, class D>
HWY_INLINE void word_tile(D d, const Transposition& it, std::int64_t row, std::int64_t column,
                          std::int64_t count) {
    const hn::Repartition<std::uint8_t, D> unaligned;
    Vector<D> square[lanes<D>];
    const char* const first = it.src + column * Words::kBytes;
    From from(it.src_rows, row);
    HWY_UNROLL(16)
    for (std::int64_t i = 0; i < lanes<D>; ++i) {
        square[i] = Words::vector(d, it, first + from.next());
    }
    if (it.is_read_ahead) {
        From ahead(it.src_rows, row);
        for (std::int64_t i = 0; i < lanes<D>; ++i) {
            const char* const src = first + ahead.next();
            for (std::int64_t byte = 0; byte < lanes<D> * Words::kBytes; byte += kLineBytes) {
                prefetch_row(src + byte);
            }
        }
    }
    transpose_square(d, square);
    To to(it.dst_rows, column);
    char* const dst = it.dst + row * kWordBytes;
    for (std::int64_t i = 0; i < count; ++i) {
        hn::StoreU(hn::BitCast(unaligned, square[i]), unaligned,
                   reinterpret_cast<std::uint8_t*>(dst + to.next()));
    }
}

// Whole words. What is narrower than a tile takes smaller ones, and returns false in the end.
template <class Words, class From, class To, class D>
bool words_in_tiles(D d, const Transposition& it, std::int64_t words) {
    constexpr std::int64_t n = lanes<D>;
    if (std::min(it.rows, words) >= n) {
        for_tiles(n, it.rows, words, d, [&](std::int64_t row, std::int64_t column) HWY_ATTR {
            word_tile<Words, From, To>(d, it, row, column, n);
        });
        return true;
    }
    if constexpr (can_be_halved<D>)
        return words_in_tiles<Words, From, To>(hn::Half<D>(), it, words);
    return false;
}

// A tile that is wider than the taps reads on into the next channels, `left` elements of them.
template <class Words, class D>
bool taps_in_tiles(D d, const Transposition& it, std::int64_t left) {
    constexpr std::int64_t n = lanes<D>;
    if (std::min(it.rows, left) >= n) {
        const std::int64_t last = std::max<std::int64_t>(it.taps - n, 0);
        for (std::int64_t row = 0; row < it.rows; row += n) {
            for (std::int64_t tap = 0; tap < it.taps; tap += n) {
                word_tile<Words, Line, Line>(d, it, std::min(row, it.rows - n), std::min(tap, last),
                                             std::min(it.taps, n));
            }
        }
        return true;
    }
    if constexpr (can_be_halved<D>) return taps_in_tiles<Words>(hn::Half<D>(), it, left);
    return false;
}

#endif

template <class Words>
void words_singly(const Transposition& it, std::int64_t begin, std::int64_t end) {
    if (begin == end) return;
    Walk from(it.src_rows, 0);
    for (std::int64_t row = 0; row < it.rows; ++row) {
        const char* const src = it.src + from.next();
        char* const dst = it.dst + row * kWordBytes;
        Walk to(it.dst_rows, begin);
        for (std::int64_t word = begin; word < end; ++word) {
            const Word bits = Words::single(it, src, word);
            std::memcpy(dst + to.next(), &bits, sizeof bits);
        }
    }
}

template <class Words, class From, class To>
void transpose_words(const Transposition& it) {
    const std::int64_t bytes = it.columns * it.element;
    std::int64_t done = 0;
#if HWY_TARGET != HWY_SCALAR
    const hn::ScalableTag<Word> d;
    if (words_in_tiles<Words, From, To>(d, it, bytes / Words::kBytes)) done = bytes / Words::kBytes;
#endif
    words_singly<Words>(it, done, (bytes + Words::kBytes - 1) / Words::kBytes);
}

void transpose_stored(const Transposition& it) {
    if (!is_line(it.src_rows)) return transpose_words<Stored, Walk, Line>(it);
    if (!is_line(it.dst_rows)) return transpose_words<Stored, Line, Walk>(it);
    transpose_words<Stored, Line, Line>(it);
}

template <class Taps>
void taps_singly(const Transposition& pair, bool full) {
    const std::int64_t rows = pair.rows, ld = pair.src_rows.near;
    const std::int64_t odd = full ? pair.taps * pair.element : -1;
    for (std::int64_t tap = 0; tap < pair.taps; ++tap) {
        const char* const src = pair.src + tap * pair.element;
        char* const dst = pair.dst + tap * pair.dst_rows.near;
        for (std::int64_t row = 0; row < rows; ++row) {
            const char* const even = src + row * ld;
            const Word bits = Taps::single(even, odd < 0 ? nullptr : even + odd);
            std::memcpy(dst + row * kWordBytes, &bits, sizeof bits);
        }
    }
}

template <class Taps>
void pair_taps(const Transposition& it) {
    const std::int64_t channels = it.columns / it.taps;
    Transposition pair = it;  // of channels; the words of each are places of their own
    for (std::int64_t c = 0; c < channels; c += 2) {
        pair.src = it.src + c * it.taps * it.element;
        pair.dst = it.dst + it.dst_rows.at(c / 2 * it.taps);
        pair.dst_rows = {.near = it.dst_rows.near};
        const bool full = c + 1 < channels;
#if HWY_TARGET != HWY_SCALAR
        const hn::ScalableTag<Word> d;
        if (full && taps_in_tiles<Taps>(d, pair, (channels - c - 1) * it.taps)) continue;
#endif
        taps_singly<Taps>(pair, full);
    }
}

TransposeFunction function(Transposing way) {
    if (way == Transposing::words) return transpose_stored;
    if (way == Transposing::rounded_words) return transpose_words<Rounded, Line, Line>;
    return way == Transposing::tap_pairs ? pair_taps<StoredTaps> : pair_taps<RoundedTaps>;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dlprim
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dlprim {

TransposeFunction word_function(Isa isa, Transposing way) {
    return DLPRIM_FOR_ISA(isa, function)(way);
}

}  // namespace dlprim
#endif
