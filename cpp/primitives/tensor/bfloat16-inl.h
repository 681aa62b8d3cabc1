// Rounding to bfloat16 and a few names, for the files that are compiled once per vector width.
// (Highway's convention: an -inl.h file is included again for every target.)
#if defined(DLPRIM_PRIMITIVES_BFLOAT16_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef DLPRIM_PRIMITIVES_BFLOAT16_INL_H
#undef DLPRIM_PRIMITIVES_BFLOAT16_INL_H
#else
#define DLPRIM_PRIMITIVES_BFLOAT16_INL_H
#endif

#include <bit>
#include <cstddef>
#include <cstdint>

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace dlprim {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

inline constexpr std::int64_t kWordBytes = 4;

// The bits of a float32 after rounding, bfloat16 in the upper half; the lower half is undefined.
inline std::uint32_t rounded(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    if ((bits & 0x7fffffff) > 0x7f800000) return bits | 0x00400000;  // a NaN, made quiet
    return bits + 0x7fff + ((bits >> 16) & 1);
}

inline std::uint16_t rounded_to_half(float value) {
    return static_cast<std::uint16_t>(rounded(value) >> 16);
}

inline constexpr std::size_t kSmallestVector = 16;  // bytes

template <class D>
using Vector = hn::Vec<D>;

template <class D>
inline constexpr std::int64_t lanes = static_cast<std::int64_t>(hn::MaxLanes(D()));

template <class D>
inline constexpr bool can_be_halved = hn::MaxLanes(D()) * sizeof(hn::TFromD<D>) > kSmallestVector;

// As for one value, in lanes of 32 bits.
template <class D>
HWY_INLINE Vector<D> rounded(D d, Vector<hn::RebindToFloat<D>> values) {
    const auto bits = hn::BitCast(d, values);
    const auto is_nan = hn::RebindMask(d, hn::IsNaN(values));
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d, 1));
    const auto nearest = hn::Add(hn::Add(bits, hn::Set(d, 0x7fff)), odd);
    return hn::IfThenElse(is_nan, hn::Or(bits, hn::Set(d, 0x00400000)), nearest);
}

template <class D>
HWY_INLINE Vector<D> rounded(D d, const float* src) {
    return rounded(d, hn::LoadU(hn::RebindToFloat<D>(), src));
}

#if HWY_TARGET != HWY_SCALAR
// As many neighbours as D has lanes of 16 bits.
template <class D>
HWY_INLINE Vector<D> rounded_to_halves(D d, const float* src) {
    const hn::RepartitionToWide<D> wide;
    const auto low = hn::BitCast(d, rounded(wide, src));
    const auto high = hn::BitCast(d, rounded(wide, src + lanes<D> / 2));
    return hn::ConcatOdd(d, high, low);
}
#endif

}  // namespace HWY_NAMESPACE
}  // namespace dlprim
HWY_AFTER_NAMESPACE();

#endif
