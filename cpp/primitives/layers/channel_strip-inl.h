// Some vectors of neighbouring channels whose per-channel values stay in registers while many
// pixels go by: how passes over pixels of activations are cut.
#if defined(DLPRIM_PRIMITIVES_CHANNEL_STRIP_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef DLPRIM_PRIMITIVES_CHANNEL_STRIP_INL_H
#undef DLPRIM_PRIMITIVES_CHANNEL_STRIP_INL_H
#else
#define DLPRIM_PRIMITIVES_CHANNEL_STRIP_INL_H
#endif

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include <hwy/highway.h>

#include "primitives/tensor/channel_vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dlprim {
namespace HWY_NAMESPACE {

// Vectors that are treated together: 64 channels with the widest vectors.
template <class Element>
inline constexpr std::int64_t kStrip = std::is_same_v<Element, float> ? 4 : 2;

// Pixels whose channels are treated strip by strip, where there are several: few enough to stay
// near, in bytes of a tensor, but enough to amortise the per-channel values.
constexpr std::int64_t kGroupBytes = 32 * 1024;
constexpr std::int64_t kFewest = 8;

template <class Element, std::int64_t kVectors>
struct Strip {
    using Vector = ChannelVector<Element>;
    Vector at[kVectors];

    template <class Part>
    static HWY_INLINE Strip of(const float* values, std::int64_t channel, Part part) {
        Strip strip;
        for (std::int64_t i = 0; i < kVectors; ++i) {
            strip.at[i] = Vector::load_floats(values + channel + i * Vector::kChannels, part);
        }
        return strip;
    }
};

#if HWY_TARGET == HWY_SCALAR
template <class Part>
HWY_INLINE void store_floats(const ChannelVector<float>& x, float* dst, Part) {
    x.store_floats(dst);
}
template <class Part>
HWY_INLINE void store_floats(const ChannelVector<std::uint16_t>& x, float* dst, Part) {
    x.store_floats(dst);
}
#else
template <class Element>
HWY_INLINE void store_floats(const ChannelVector<Element>& x, float* dst, All) {
    x.store_floats(dst);
}
template <class Element>
HWY_INLINE void store_floats(const ChannelVector<Element>& x, float* dst, First part) {
    HWY_ALIGN float copy[static_cast<std::size_t>(ChannelVector<Element>::kChannels)];
    x.store_floats(copy);
    std::copy_n(copy, part.count, dst);
}
#endif

template <class Element>
inline constexpr std::int64_t kStripChannels = kStrip<Element> * ChannelVector<Element>::kChannels;

template <class Element>
HWY_INLINE std::int64_t pixels_of_group(std::int64_t channels) {
    return std::max(kGroupBytes / (channels * static_cast<std::int64_t>(sizeof(Element))), kFewest);
}

// What is read soon, to be prefetched: about 2 KiB ahead, as the hardware's prefetchers do not look
// beyond a page, nor along strips.
template <class Element>
class NextStrip {
public:
    // Of pixels at a distance in elements.
    NextStrip(std::int64_t channels, std::int64_t distance) : channels_(channels) {
        const auto bytes = distance * static_cast<std::int64_t>(sizeof(Element));
        const bool narrow = channels <= kStripChannels<Element>;
        rest_ = distance * (narrow ? std::max<std::int64_t>(kAheadBytes / bytes, 1)
                                   : pixels_of_group<Element>(channels));
        narrow_ = narrow;
    }

    // Elements from a vector at this channel to the one to prefetch: in the same pixel's next
    // strip, behind the last one in the next group's first.
    std::int64_t from(std::int64_t channel) const {
        if (narrow_) return rest_;
        return channel + kStripChannels<Element> < channels_ ? kStripChannels<Element>
                                                             : rest_ - channel;
    }

private:
    static constexpr std::int64_t kAheadBytes = 2 * 1024;

    std::int64_t channels_;
    std::int64_t rest_;
    bool narrow_;
};

// body(first, end) for groups of pixels: all of them at once where a strip holds their channels.
template <class Element, class Body>
HWY_INLINE void in_groups(std::int64_t pixels, std::int64_t channels, const Body& body) {
    const bool narrow = channels <= kStripChannels<Element>;
    const std::int64_t group = narrow ? pixels : pixels_of_group<Element>(channels);
    for (std::int64_t first = 0; first < pixels; first += group) {
        body(first, std::min(first + group, pixels));
    }
}

}  // namespace HWY_NAMESPACE
}  // namespace dlprim
HWY_AFTER_NAMESPACE();

#endif
