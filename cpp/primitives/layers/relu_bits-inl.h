// The mask of a relu between memory, a bit per channel, and registers, a lane per channel: so that
// layers can keep 1/32 of a tensor for the gradient instead of all of it.
#if defined(DLPRIM_PRIMITIVES_RELU_BITS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef DLPRIM_PRIMITIVES_RELU_BITS_INL_H
#undef DLPRIM_PRIMITIVES_RELU_BITS_INL_H
#else
#define DLPRIM_PRIMITIVES_RELU_BITS_INL_H
#endif

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include <hwy/highway.h>

#include "primitives/tensor/channel_vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dlprim {
namespace HWY_NAMESPACE {

// Vectors begin at multiples of their length. The bytes of one are its own where it has at least
// eight channels; shorter ones share a byte, so they are stored in the order of their channels.

#if HWY_TARGET == HWY_SCALAR

// Lanes of ones where the bit is set, else zeros. `row` is the first byte of the pixel.
template <class Element, class Part>
HWY_INLINE ChannelVector<Element> ones_of_bits(const std::uint8_t* row, std::int64_t channel,
                                               Part) {
    const bool set = (row[channel / 8] >> channel % 8 & 1) != 0;
    return {std::bit_cast<float>(set ? 0xffffffffU : 0U)};
}

// Sets the bits of results that are not <= 0, which `out` holds.
template <class Element, class Part>
HWY_INLINE void store_bits(const Element* out, std::uint8_t* row, std::int64_t channel, Part part) {
    const bool passes = !(ChannelVector<Element>::load(out, part).value <= 0);
    if (channel % 8 == 0) row[channel / 8] = 0;
    if (passes) row[channel / 8] = static_cast<std::uint8_t>(row[channel / 8] | 1 << channel % 8);
}

#else

template <class Element>
HWY_INLINE std::size_t mask_bytes(All) {
    return static_cast<std::size_t>((ChannelVector<Element>::kChannels + 7) / 8);
}
template <class Element>
HWY_INLINE std::size_t mask_bytes(First part) {
    return static_cast<std::size_t>((part.count + 7) / 8);
}

// Lanes of ones where the bit is set, else zeros; of bfloat16 in the upper halves only, which is
// where its values are. `row` is the first byte of the pixel.
template <class Element, class Part>
HWY_INLINE ChannelVector<Element> ones_of_bits(const std::uint8_t* row, std::int64_t channel,
                                               Part part) {
    std::uint8_t copy[8] = {};
    std::memcpy(copy, row + channel / 8, mask_bytes<Element>(part));
    copy[0] = static_cast<std::uint8_t>(copy[0] >> channel % 8);
    if constexpr (std::is_same_v<Element, float>) {
        return {hn::VecFromMask(Floats(), hn::LoadMaskBits(Floats(), copy))};
    } else {
        const auto ones = hn::VecFromMask(Halves(), hn::LoadMaskBits(Halves(), copy));
        const auto pairs = hn::BitCast(Words(), ones);
        return {hn::BitCast(Floats(), hn::ShiftLeft<16>(pairs)),
                hn::BitCast(Floats(), hn::And(pairs, hn::Set(Words(), 0xffff0000)))};
    }
}

template <class D>
HWY_INLINE hn::Mask<D> passes(D d, hn::Vec<D> results) {
    if constexpr (std::is_same_v<hn::TFromD<D>, float>) {
        return hn::Not(hn::Le(results, hn::Zero(d)));
    } else {
        // As signed integers, of results of a relu: zero, the positive ones, NaN of either sign.
        return hn::Ne(hn::And(results, hn::Set(d, 0x7fff)), hn::Zero(d));
    }
}

// Of halves in bytes: hn::StoreMaskBits would need BMI2 for halves.
template <class D>
HWY_INLINE void store_mask(D d, hn::Mask<D> mask, std::uint8_t* bits) {
    if constexpr (HWY_TARGET <= HWY_AVX3 || sizeof(hn::TFromD<D>) == kWordBytes) {
        hn::StoreMaskBits(d, mask, bits);
    } else {
        const hn::RebindToSigned<D> integers;
        const hn::Rebind<std::int8_t, D> bytes;
        const auto ones = hn::BitCast(integers, hn::VecFromMask(d, mask));
        hn::StoreMaskBits(bytes, hn::MaskFromVec(hn::DemoteTo(bytes, ones)), bits);
    }
}

// Sets the bits of results of a relu that are not 0, which `out` holds.
template <class Element, class Part>
HWY_INLINE void store_bits(const Element* out, std::uint8_t* row, std::int64_t channel, Part part) {
    using D = std::conditional_t<std::is_same_v<Element, float>, Floats, Halves>;
    const D d;
    std::uint8_t copy[8] = {};
    store_mask(d, passes(d, load_part(d, out, part)), copy);
    if constexpr (lanes<D> < 8) {
        if (channel % 8 != 0) {
            row[channel / 8] = static_cast<std::uint8_t>(row[channel / 8] | copy[0] << channel % 8);
            return;
        }
    }
    std::memcpy(row + channel / 8, copy, mask_bytes<Element>(part));
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace dlprim
HWY_AFTER_NAMESPACE();

#endif
