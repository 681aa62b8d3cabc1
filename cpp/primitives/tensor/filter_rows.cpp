// Compiled once per target, as per_isa.h describes.
#include "primitives/tensor/filter_rows.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "primitives/tensor/partition.h"
#include "primitives/tensor/per_isa.h"

#define HWY_TARGET_INCLUDE "primitives/tensor/filter_rows.cpp"
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

using Word = std::uint32_t;
using Half = std::uint16_t;

const Word* plain_words(const FilterStrip& strip, std::int64_t filter) {
    return static_cast<const Word*>(strip.plain) + filter * strip.ld_plain;
}

// Where the words of the filters are, element by element of a filter: [channel][tap].
class Places {
public:
    Places(const FilterStrip& strip, std::int64_t element)
        : strip_(strip), channel_(element / strip.taps), tap_(element % strip.taps) {}

    Word* next() {
        Word* const place = static_cast<Word*>(strip_.packed) + channel_ * strip_.ld_channels +
                            tap_ * strip_.ld_tap;
        if (++tap_ == strip_.taps) {
            tap_ = 0;
            ++channel_;
        }
        return place;
    }

private:
    const FilterStrip& strip_;
    std::int64_t channel_;
    std::int64_t tap_;
};

// Each of these moves words one way: `tile` a square of as many filters as D has lanes, `singly`
// any part.

struct ToPacked {
    static void singly(const FilterStrip& strip, Range filters, Range elements) {
        Places places(strip, elements.begin);
        for (std::int64_t e = elements.begin; e < elements.end; ++e) {
            Word* const dst = places.next();
            for (std::int64_t k = filters.begin; k < filters.end; ++k) {
                std::memcpy(dst + k, plain_words(strip, k) + e, sizeof *dst);
            }
        }
    }

#if HWY_TARGET != HWY_SCALAR
    template <class D>
    static HWY_INLINE void tile(D d, const FilterStrip& strip, std::int64_t filter,
                                std::int64_t element) {
        Vector<D> square[lanes<D>];
        for (std::int64_t i = 0; i < lanes<D>; ++i) {
            const Word* const src = plain_words(strip, filter + i) + element;
            square[i] = hn::LoadU(d, src);
            prefetch_row(src);
        }
        transpose_square(d, square);
        Places places(strip, element);
        for (std::int64_t i = 0; i < lanes<D>; ++i) {
            hn::StoreU(square[i], d, places.next() + filter);
        }
    }
#endif
};

struct ToPlain {
    static void singly(const FilterStrip& strip, Range filters, Range elements) {
        Places places(strip, elements.begin);
        for (std::int64_t e = elements.begin; e < elements.end; ++e) {
            const Word* const src = places.next();
            for (std::int64_t k = filters.begin; k < filters.end; ++k) {
                std::memcpy(const_cast<Word*>(plain_words(strip, k)) + e, src + k, sizeof *src);
            }
        }
    }

#if HWY_TARGET != HWY_SCALAR
    template <class D>
    static HWY_INLINE void tile(D d, const FilterStrip& strip, std::int64_t filter,
                                std::int64_t element) {
        Vector<D> square[lanes<D>];
        Places places(strip, element);
        for (std::int64_t i = 0; i < lanes<D>; ++i) {
            square[i] = hn::LoadU(d, places.next() + filter);
        }
        transpose_square(d, square);
        for (std::int64_t i = 0; i < lanes<D>; ++i) {
            hn::StoreU(square[i], d, const_cast<Word*>(plain_words(strip, filter + i)) + element);
        }
    }
#endif
};

#if HWY_TARGET != HWY_SCALAR
// The last tiles overlap those before them; what is narrower than a tile takes smaller ones.
template <class Way, class D>
void in_tiles(D d, const FilterStrip& strip) {
    constexpr std::int64_t n = lanes<D>;
    const std::int64_t elements = strip.channels * strip.taps;
    if (std::min(strip.filters, elements) >= n) {
        for (std::int64_t k = 0; k < strip.filters; k += n) {
            for (std::int64_t e = 0; e < elements; e += n) {
                Way::tile(d, strip, std::min(k, strip.filters - n), std::min(e, elements - n));
            }
        }
    } else if constexpr (can_be_halved<D>) {
        in_tiles<Way>(hn::Half<D>(), strip);
    } else {
        Way::singly(strip, {0, strip.filters}, {0, elements});
    }
}
#endif

template <class Way>
void move_words(const FilterStrip& strip) {
#if HWY_TARGET != HWY_SCALAR
    in_tiles<Way>(hn::ScalableTag<Word>(), strip);
#else
    Way::singly(strip, {0, strip.filters}, {0, strip.channels * strip.taps});
#endif
}

// Both of these give what packed storage holds of elements of two neighbouring channels, and one of
// them alone.

struct StoredPair {
    using Element = Half;

    static Half half(const Half* src) { return *src; }

#if HWY_TARGET != HWY_SCALAR
    template <class D>
    static HWY_INLINE Vector<D> vector(D d, const Half* even, const Half* odd) {
        const hn::Rebind<Half, D> halves;
        const auto low = hn::PromoteTo(d, hn::LoadU(halves, even));
        const auto high = hn::PromoteTo(d, hn::LoadU(halves, odd));
        return hn::Or(low, hn::ShiftLeft<16>(high));
    }
#endif
};

struct RoundedPair {
    using Element = float;

    static Half half(const float* src) { return rounded_to_half(*src); }

#if HWY_TARGET != HWY_SCALAR
    template <class D>
    static HWY_INLINE Vector<D> vector(D d, const float* even, const float* odd) {
        const auto low = rounded(d, even), high = rounded(d, odd);
        return hn::Or(hn::ShiftRight<16>(low), hn::And(high, hn::Set(d, 0xffff0000)));
    }
#endif
};

template <class Pair>
const typename Pair::Element* plain_elements(const FilterStrip& strip, std::int64_t filter,
                                             std::int64_t pair) {
    return static_cast<const typename Pair::Element*>(strip.plain) + filter * strip.ld_plain +
           2 * pair * strip.taps;
}

Word* packed_words(const FilterStrip& strip, std::int64_t pair, std::int64_t tap) {
    return static_cast<Word*>(strip.packed) + pair * strip.ld_channels + tap * strip.ld_tap;
}

template <class Pair>
void pack_pair_singly(const FilterStrip& strip, std::int64_t pair) {
    const bool full = 2 * pair + 1 < strip.channels;
    for (std::int64_t tap = 0; tap < strip.taps; ++tap) {
        Word* const dst = packed_words(strip, pair, tap);
        for (std::int64_t k = 0; k < strip.filters; ++k) {
            const auto* const src = plain_elements<Pair>(strip, k, pair) + tap;
            const Word high = full ? Pair::half(src + strip.taps) : 0;
            dst[k] = Pair::half(src) | high << 16;
        }
    }
}

#if HWY_TARGET != HWY_SCALAR
template <class Pair, class D>
HWY_INLINE void pair_tile(D d, const FilterStrip& strip, std::int64_t filter, std::int64_t pair,
                          Range taps) {
    Vector<D> square[lanes<D>];
    for (std::int64_t i = 0; i < lanes<D>; ++i) {
        const auto* const even = plain_elements<Pair>(strip, filter + i, pair) + taps.begin;
        square[i] = Pair::vector(d, even, even + strip.taps);
        prefetch_row(even);
    }
    transpose_square(d, square);
    for (std::int64_t i = 0; i < taps.size(); ++i) {
        hn::StoreU(square[i], d, packed_words(strip, pair, taps.begin + i) + filter);
    }
}

// A tile that is wider than the taps reads on into the next channels, where there are some.
template <class Pair, class D>
void pack_pair(D d, const FilterStrip& strip, std::int64_t pair) {
    constexpr std::int64_t n = lanes<D>;
    const std::int64_t left = (strip.channels - 2 * pair - 1) * strip.taps;
    if (std::min(strip.filters, left) >= n) {
        const std::int64_t last = std::max<std::int64_t>(strip.taps - n, 0);
        const std::int64_t count = std::min(strip.taps, n);
        for (std::int64_t k = 0; k < strip.filters; k += n) {
            for (std::int64_t i = 0; i < strip.taps; i += n) {
                const std::int64_t tap = std::min(i, last);
                pair_tile<Pair>(d, strip, std::min(k, strip.filters - n), pair, {tap, tap + count});
            }
        }
    } else if constexpr (can_be_halved<D>) {
        pack_pair<Pair>(hn::Half<D>(), strip, pair);
    } else {
        pack_pair_singly<Pair>(strip, pair);
    }
}
#endif

template <class Pair>
void pack_pairs(const FilterStrip& strip) {
    const std::int64_t pairs = strip.channels / 2;
    for (std::int64_t pair = 0; pair < pairs; ++pair) {
#if HWY_TARGET != HWY_SCALAR
        pack_pair<Pair>(hn::ScalableTag<Word>(), strip, pair);
#else
        pack_pair_singly<Pair>(strip, pair);
#endif
    }
    if (2 * pairs < strip.channels) pack_pair_singly<Pair>(strip, pairs);
}

PackFilters packing(DType from, DType to) {
    if (to == DType::f32) return move_words<ToPacked>;
    return from == DType::f32 ? pack_pairs<RoundedPair> : pack_pairs<StoredPair>;
}

UnpackFilters unpacking() { return move_words<ToPlain>; }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dlprim
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dlprim {

PackFilters pack_filters_function(Isa isa, DType from, DType to) {
    return DLPRIM_FOR_ISA(isa, packing)(from, to);
}

UnpackFilters unpack_filters_function(Isa isa) { return DLPRIM_FOR_ISA(isa, unpacking)(); }

}  // namespace dlprim
#endif
