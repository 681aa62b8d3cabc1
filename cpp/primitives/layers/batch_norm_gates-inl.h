// What lets a gradient through the relu behind batch normalisation: nothing to ask, dst, a bit per
// element, or the sign computed again. Each is called with the gradient and the centred src of a
// vector of channels.
#if defined(DLPRIM_PRIMITIVES_BATCH_NORM_GATES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef DLPRIM_PRIMITIVES_BATCH_NORM_GATES_INL_H
#undef DLPRIM_PRIMITIVES_BATCH_NORM_GATES_INL_H
#else
#define DLPRIM_PRIMITIVES_BATCH_NORM_GATES_INL_H
#endif

#include <cstdint>

#include <hwy/highway.h>

#include "primitives/layers/channel_arithmetic-inl.h"
#include "primitives/layers/relu_bits-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dlprim {
namespace HWY_NAMESPACE {

struct NoGate {
    template <class Element, class Part>
    HWY_INLINE ChannelVector<Element> operator()(const ChannelVector<Element>& diff,
                                                 const ChannelVector<Element>&, std::int64_t,
                                                 std::int64_t, Part) const {
        return diff;
    }
};

template <class Element>
struct DstGate {
    const Element* dst;
    std::int64_t distance;

    template <class Part>
    HWY_INLINE ChannelVector<Element> operator()(const ChannelVector<Element>& diff,
                                                 const ChannelVector<Element>&, std::int64_t pixel,
                                                 std::int64_t channel, Part part) const {
        return each(Passed(), diff,
                    ChannelVector<Element>::load(dst + pixel * distance + channel, part));
    }
};

struct BitGate {
    const std::uint8_t* bits;
    std::int64_t distance;

    template <class Element, class Part>
    HWY_INLINE ChannelVector<Element> operator()(const ChannelVector<Element>& diff,
                                                 const ChannelVector<Element>&, std::int64_t pixel,
                                                 std::int64_t channel, Part part) const {
        return each(Bits(), diff, ones_of_bits<Element>(bits + pixel * distance, channel, part));
    }
};

// dst's sign, computed exactly as the forward pass did.
struct RecomputingGate {
    const float* scale;
    const float* bias;

    template <class Element, class Part>
    HWY_INLINE ChannelVector<Element> operator()(const ChannelVector<Element>& diff,
                                                 const ChannelVector<Element>& centred,
                                                 std::int64_t, std::int64_t channel,
                                                 Part part) const {
        using Vector = ChannelVector<Element>;
        return each(Passed(), diff,
                    each(ProductSum(), centred, Vector::load_floats(scale + channel, part),
                         Vector::load_floats(bias + channel, part)));
    }
};

}  // namespace HWY_NAMESPACE
}  // namespace dlprim
HWY_AFTER_NAMESPACE();

#endif
