// Compiled once per target, as per_isa.h describes.
#include "primitives/layers/pooling_rows.h"

#include <cstdint>
#include <limits>
#include <type_traits>

#include "primitives/tensor/per_isa.h"

#define HWY_TARGET_INCLUDE "primitives/layers/pooling_rows.cpp"
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "primitives/layers/channel_arithmetic-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace dlprim {
namespace HWY_NAMESPACE {
namespace {

// Vectors that are under way together.
template <class Element>
inline constexpr std::int64_t kTogether = std::is_same_v<Element, float> ? 4 : 2;

// x where it beats y: larger, or NaN.
struct Winner {
    HWY_INLINE FloatVector operator()(FloatVector x, FloatVector y) const {
        return hn::IfThenElse(beats(x, y), x, y);
    }
    static HWY_INLINE hn::Mask<Floats> beats(FloatVector x, FloatVector y) {
        return hn::Or(hn::Gt(x, y), hn::IsNaN(x));
    }
};
// `tap` where x beats y, else `others`.
struct WinningTap {
    HWY_INLINE FloatVector operator()(FloatVector tap, FloatVector others, FloatVector x,
                                      FloatVector y) const {
        return hn::IfThenElse(Winner::beats(x, y), tap, others);
    }
};

// Taps are numbers below 256, exact in every type here. Forward they are float32 in registers, as
// the values are; backward as wide as the elements in memory.
template <class Element>
using Stored = std::conditional_t<ChannelVector<Element>::kRegisters == 1, Words, Halves>;
template <class Element>
using Taps = hn::Rebind<std::uint8_t, Stored<Element>>;

template <class Element>
HWY_INLINE Vector<Taps<Element>> bytes_of(const ChannelVector<Element>& taps) {
    const hn::RebindToSigned<Floats> words;
    if constexpr (ChannelVector<Element>::kRegisters == 1) {
        return hn::DemoteTo(Taps<Element>(), hn::ConvertTo(words, taps.values));
    } else {
        const auto odd = hn::ShiftLeft<16>(hn::ConvertTo(words, taps.odd));
        const hn::RebindToSigned<Halves> halves;
        return hn::DemoteTo(Taps<Element>(),
                            hn::BitCast(halves, hn::Or(hn::ConvertTo(words, taps.even), odd)));
    }
}

template <class Element, class Part>
HWY_INLINE void store_taps(const ChannelVector<Element>& taps, std::uint8_t* out, Part part) {
    store_part(Taps<Element>(), bytes_of<Element>(taps), out, part);
}

// The channels at `src` whose tap is `tap`, zero for the others. With And, as a masked load of 16
// bits takes half as long again: see channel_arithmetic-inl.h.
template <class Element, class Part>
HWY_INLINE ChannelVector<Element> load_where(const Element* src, const std::uint8_t* taps,
                                             std::int64_t tap, Part part) {
    const auto from = load_part(Taps<Element>(), taps, part);
    if constexpr (ChannelVector<Element>::kRegisters == 1) {
        const hn::RebindToSigned<Floats> words;
        const auto wanted = hn::Set(words, static_cast<std::int32_t>(tap));
        const auto taken = hn::Eq(hn::PromoteTo(words, from), wanted);
        return {hn::IfThenElseZero(hn::RebindMask(Floats(), taken), load_values(src, part))};
    } else {
        const auto wanted = hn::Set(Halves(), static_cast<std::uint16_t>(tap));
        const auto taken = hn::Eq(hn::PromoteTo(Halves(), from), wanted);
        return ChannelVector<Element>::of(
            hn::And(hn::VecFromMask(Halves(), taken), load_part(Halves(), src, part)));
    }
}

template <class Element, bool kTaps>
struct MaximumRow {
    const PoolWindow& it;

    template <std::int64_t kVectors, class Part>
    HWY_INLINE void columns(std::int64_t channel, Part part) const {
        using Vector = ChannelVector<Element>;
        Vector best[kVectors], taps[kVectors];
        for (std::int64_t i = 0; i < kVectors; ++i) {
            best[i] = all_of<Element>(-std::numeric_limits<float>::infinity());
            taps[i] = all_of<Element>(static_cast<float>(it.tap));
        }
        const auto* const from = static_cast<const Element*>(it.from) + channel;
        for (std::int64_t r = 0; r < it.rows; ++r) {
            for (std::int64_t s = 0; s < it.columns; ++s) {
                const Vector tap = all_of<Element>(
                    static_cast<float>(it.tap + r * it.tap_row + s * it.tap_column));
                const auto* const pixel = from + r * it.row_distance + s * it.column_distance;
                for (std::int64_t i = 0; i < kVectors; ++i) {
                    const Vector value = Vector::load(pixel + i * Vector::kChannels, part);
                    if constexpr (kTaps) taps[i] = each(WinningTap(), tap, taps[i], value, best[i]);
                    best[i] = each(Winner(), value, best[i]);
                }
            }
        }
        for (std::int64_t i = 0; i < kVectors; ++i) {
            const std::int64_t at = channel + i * Vector::kChannels;
            best[i].store(static_cast<Element*>(it.to) + at, part);
            if constexpr (kTaps) store_taps<Element>(taps[i], it.taps_out + at, part);
        }
    }
};

template <class Element, bool kTaps>
struct SumRow {
    const PoolWindow& it;

    template <std::int64_t kVectors, class Part>
    HWY_INLINE void columns(std::int64_t channel, Part part) const {
        using Vector = ChannelVector<Element>;
        Vector sums[kVectors];
        for (std::int64_t i = 0; i < kVectors; ++i) sums[i] = Vector::zero();
        for (std::int64_t r = 0; r < it.rows; ++r) {
            for (std::int64_t s = 0; s < it.columns; ++s) {
                add(sums, r, s, channel, part);
            }
        }
        for (std::int64_t i = 0; i < kVectors; ++i) {
            sums[i].store(static_cast<Element*>(it.to) + channel + i * Vector::kChannels, part);
        }
    }

    template <std::int64_t kVectors, class Part>
    HWY_INLINE void add(ChannelVector<Element> (&sums)[kVectors], std::int64_t r, std::int64_t s,
                        std::int64_t channel, Part part) const {
        using Vector = ChannelVector<Element>;
        const std::int64_t pixel = r * it.row_distance + s * it.column_distance + channel;
        const auto* const from = static_cast<const Element*>(it.from) + pixel;
        if constexpr (kTaps) {
            const std::int64_t tap = it.tap + r * it.tap_row + s * it.tap_column;
            for (std::int64_t i = 0; i < kVectors; ++i) {
                const std::int64_t at = i * Vector::kChannels;
                sums[i].add(load_where<Element>(from + at, it.taps + pixel + at, tap, part));
            }
        } else {
            const Vector factor =
                all_of<Element>(it.scale * it.row_factors[r] * it.column_factors[s]);
            for (std::int64_t i = 0; i < kVectors; ++i) {
                sums[i].multiply_add(Vector::load(from + i * Vector::kChannels, part), factor);
            }
        }
    }
};

template <class Element>
void maximum(const PoolWindow& it) {
    if (it.taps_out == nullptr) {
        along_channels<Element, kTogether<Element>>(it.channels, MaximumRow<Element, false>{it});
    } else {
        along_channels<Element, kTogether<Element>>(it.channels, MaximumRow<Element, true>{it});
    }
}

template <class Element, bool kTaps>
void sum(const PoolWindow& it) {
    along_channels<Element, kTogether<Element>>(it.channels, SumRow<Element, kTaps>{it});
}

template <class Element>
PoolFunctions functions() {
    return {maximum<Element>, sum<Element, true>, sum<Element, false>};
}

PoolFunctions pool_functions_of(DType dtype) {
    return dtype == DType::f32 ? functions<float>() : functions<std::uint16_t>();
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dlprim
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dlprim {

PoolFunctions pool_functions(Isa isa, DType dtype) {
    return DLPRIM_FOR_ISA(isa, pool_functions_of)(dtype);
}

}  // namespace dlprim
#endif
