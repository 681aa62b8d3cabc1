// What lets a gradient through a relu, for the files that are compiled once per vector width:
// nothing to ask, the result, a bit per element (so that layers keep 1/32 of a tensor instead of
// all of it), or the sign computed again. Each is called with the gradient and the centred src of a
// vector of channels.
#if defined(DLPRIM_PRIMITIVES_RELU_GATES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef DLPRIM_PRIMITIVES_RELU_GATES_INL_H
#undef DLPRIM_PRIMITIVES_RELU_GATES_INL_H
#else
#define DLPRIM_PRIMITIVES_RELU_GATES_INL_H
#endif

#include <cstdint>
#include <cstring>
#include <type_traits>

#include <hwy/highway.h>

#include "primitives/layers/channel_arithmetic-inl.h"
#include "primitives/layers/channel_panels.h"

HWY_BEFORE_NAMESPACE();
namespace dlprim {
namespace HWY_NAMESPACE {

// Masks between memory, a bit per channel, and registers, a lane per channel. Vectors begin at
// multiples of their length. The bytes of one are its own where it has at least eight channels;
// shorter ones share a byte, so they are stored in the order of their channels.

template <class V>
HWY_INLINE std::size_t mask_bytes(All) {
    return static_cast<std::size_t>((V::kChannels + 7) / 8);
}
template <class V>
HWY_INLINE std::size_t mask_bytes(First part) {
    return static_cast<std::size_t>((part.count + 7) / 8);
}

// Lanes of ones where the bit is set, else zeros; of bfloat16 in the upper halves only, which is
// where its values are. `row` is the first byte of the pixel.
template <InRegisters V, class Part>
HWY_INLINE V ones_of_bits(const std::uint8_t* row, std::int64_t channel, Part part) {
    std::uint8_t copy[8] = {};  // LoadMaskBits may read eight, more than there are
    std::memcpy(copy, row + channel / 8, mask_bytes<V>(part));
    copy[0] = static_cast<std::uint8_t>(copy[0] >> channel % 8);
    if constexpr (V::kRegisters == 1) {
        return {hn::VecFromMask(Floats(), hn::LoadMaskBits(Floats(), copy))};
    } else {
        return V::of(hn::VecFromMask(Halves(), hn::LoadMaskBits(Halves(), copy)));
    }
}

template <class D>
HWY_INLINE hn::Mask<D> passes(D d, hn::Vec<D> results) {
    if constexpr (std::is_same_v<hn::TFromD<D>, float>) {
        return hn::Not(hn::Le(results, hn::Zero(d)));
    } else {
        // As integers, of results of a relu: zero, the positive ones, NaN of either sign.
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
    std::memcpy(row + channel / 8, copy, mask_bytes<ChannelVector<Element>>(part));
}

struct NoGate {
    template <InRegisters V, class Part>
    HWY_INLINE V operator()(const V& diff, const V&, std::int64_t, std::int64_t, Part) const {
        return diff;
    }
};

template <class Element>
struct DstGate {
    const Element* dst;
    std::int64_t distance;

    template <InRegisters V, class Part>
    HWY_INLINE V operator()(const V& diff, const V&, std::int64_t pixel, std::int64_t channel,
                            Part part) const {
        return each(Passed(), diff, V::load(dst + pixel * distance + channel, part));
    }
};

struct BitGate {
    const std::uint8_t* bits;
    std::int64_t distance;

    template <InRegisters V, class Part>
    HWY_INLINE V operator()(const V& diff, const V&, std::int64_t pixel, std::int64_t channel,
                            Part part) const {
        return each(Bits(), diff, ones_of_bits<V>(bits + pixel * distance, channel, part));
    }
};

// dst's sign, computed exactly as the forward pass of batch normalisation did.
struct RecomputingGate {
    const float* scale;
    const float* bias;

    template <InRegisters V, class Part>
    HWY_INLINE V operator()(const V& diff, const V& centred, std::int64_t, std::int64_t channel,
                            Part part) const {
        return each(Passed(), diff,
                    each(ProductSum(), centred, V::load_floats(scale + channel, part),
                         V::load_floats(bias + channel, part)));
    }
};

// Calls body with the gate that asks the mask of `it`, or else dst, if there is either.
template <class Element, class Body>
HWY_INLINE void with_stored_gate(const PixelRows& it, const Body& body) {
    if (it.relu_mask != nullptr) {
        body(BitGate{it.relu_mask, it.mask_distance});
    } else if (it.saved != nullptr) {
        body(DstGate<Element>{static_cast<const Element*>(it.saved), it.distance});
    } else {
        body(NoGate());
    }
}

}  // namespace HWY_NAMESPACE
}  // namespace dlprim
HWY_AFTER_NAMESPACE();

#endif
