// Compiled once per target, as pack_rows.cpp.
#include "primitives/pooling_rows.h"

#include <cstdint>
#include <limits>
#include <type_traits>

#define HWY_TARGET_INCLUDE "primitives/pooling_rows.cpp"
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "primitives/channel_arithmetic-inl.h"
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
    static HWY_INLINE hn::Mask<FloatLanes> beats(FloatVector x, FloatVector y) {
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
struct WhereEqual {
    HWY_INLINE FloatVector operator()(FloatVector value, FloatVector x, FloatVector y) const {
        return hn::IfThenElseZero(hn::Eq(x, y), value);
    }
};

// Taps are numbers below 256, exact in every type here; in registers they are float32.
#if HWY_TARGET == HWY_SCALAR
template <class Element, class Part>
HWY_INLINE void store_taps(const ChannelVector<Element>& taps, std::uint8_t* out, Part) {
    *out = static_cast<std::uint8_t>(taps.value);
}
template <class Element, class Part>
HWY_INLINE ChannelVector<Element> load_taps(const std::uint8_t* taps, Part) {
    return {static_cast<float>(*taps)};
}
#else
template <class Element>
HWY_INLINE std::int64_t size_of_part(All) {
    return ChannelVector<Element>::kChannels;
}
template <class Element>
HWY_INLINE std::int64_t size_of_part(First part) {
    return part.count;
}

template <class Element, class Part>
HWY_INLINE void store_taps(const ChannelVector<Element>& taps, std::uint8_t* out, Part part) {
    constexpr auto kCount = static_cast<std::size_t>(ChannelVector<Element>::kChannels);
    const hn::RebindToSigned<Floats> words;
    const hn::Rebind<std::uint8_t, Floats> bytes;
    if constexpr (std::is_same_v<Element, float> && std::is_same_v<Part, All>) {
        hn::StoreU(hn::DemoteTo(bytes, hn::ConvertTo(words, taps.values)), bytes, out);
        return;
    }
    HWY_ALIGN float values[kCount];
    HWY_ALIGN std::uint8_t copy[kCount];
    taps.store_floats(values);
    for (std::size_t i = 0; i < kCount; i += hn::Lanes(bytes)) {
        const auto integers = hn::ConvertTo(words, hn::Load(Floats(), values + i));
        hn::Store(hn::DemoteTo(bytes, integers), bytes, copy + i);
    }
    std::memcpy(out, copy, static_cast<std::size_t>(size_of_part<Element>(part)));
}

template <class Element, class Part>
HWY_INLINE ChannelVector<Element> load_taps(const std::uint8_t* taps, Part part) {
    constexpr auto kCount = static_cast<std::size_t>(ChannelVector<Element>::kChannels);
    const hn::RebindToSigned<Floats> words;
    const hn::Rebind<std::uint8_t, Floats> bytes;
    if constexpr (std::is_same_v<Element, float> && std::is_same_v<Part, All>) {
        return {hn::ConvertTo(Floats(), hn::PromoteTo(words, hn::LoadU(bytes, taps)))};
    }
    HWY_ALIGN float values[kCount];
    HWY_ALIGN std::uint8_t copy[kCount] = {};
    std::memcpy(copy, taps, static_cast<std::size_t>(size_of_part<Element>(part)));
    for (std::size_t i = 0; i < kCount; i += hn::Lanes(bytes)) {
        const auto integers = hn::PromoteTo(words, hn::Load(bytes, copy + i));
        hn::Store(hn::ConvertTo(Floats(), integers), Floats(), values + i);
    }
    return ChannelVector<Element>::load_floats(values);
}
#endif

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
            if constexpr (kTaps) store_taps(taps[i], it.taps_out + at, part);
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
        Vector factor;
        if constexpr (kTaps) {
            factor =
                all_of<Element>(static_cast<float>(it.tap + r * it.tap_row + s * it.tap_column));
        } else {
            factor = all_of<Element>(it.scale * it.row_factors[r] * it.column_factors[s]);
        }
        for (std::int64_t i = 0; i < kVectors; ++i) {
            const Vector value = Vector::load(from + i * Vector::kChannels, part);
            if constexpr (kTaps) {
                const auto taken =
                    load_taps<Element>(it.taps + pixel + i * Vector::kChannels, part);
                sums[i].add(each(WhereEqual(), value, taken, factor));
            } else {
                sums[i].multiply_add(value, factor);
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

PoolFunctions pool_functions([[maybe_unused]] Isa isa, DType dtype) {
#if HWY_TARGETS & HWY_AVX3
    if (isa >= Isa::avx512) return N_AVX3::pool_functions_of(dtype);
#endif
#if HWY_TARGETS & HWY_AVX2
    if (isa >= Isa::avx2) return N_AVX2::pool_functions_of(dtype);
#endif
    return HWY_STATIC_DISPATCH(pool_functions_of)(dtype);
}

}  // namespace dlprim
#endif
