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

#include "primitives/layers/channel_arithmetic-inl.h"
#include "primitives/tensor/partition.h"

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

    static HWY_INLINE Strip zero() {
        Strip strip;
        for (Vector& vector : strip.at) vector = Vector::zero();
        return strip;
    }
    template <class Part>
    static HWY_INLINE Strip of(const float* values, std::int64_t channel, Part part) {
        Strip strip;
        for (std::int64_t i = 0; i < kVectors; ++i) {
            strip.at[i] = Vector::load_floats(values + channel + i * Vector::kChannels, part);
        }
        return strip;
    }
    template <class Part>
    HWY_INLINE void store(float* values, std::int64_t channel, Part part) const {
        for (std::int64_t i = 0; i < kVectors; ++i) {
            store_floats(at[i], values + channel + i * Vector::kChannels, part);
        }
    }
};

template <class Element>
inline constexpr std::int64_t kStripChannels = kStrip<Element> * ChannelVector<Element>::kChannels;

// Channels that along_channels() treats at once.
template <class Element>
HWY_INLINE bool is_one_strip(std::int64_t channels) {
    return channels == kStripChannels<Element> || channels <= ChannelVector<Element>::kChannels;
}

template <class Element>
HWY_INLINE std::int64_t pixels_of_group(std::int64_t channels) {
    return std::max(kGroupBytes / (channels * static_cast<std::int64_t>(sizeof(Element))), kFewest);
}

// What is read soon, to be prefetched: about 2 KiB ahead, as the hardware's prefetchers do not look
// beyond a page, nor along strips.
template <class Element>
class NextStrip {
public:
    // Of groups of pixels at a distance in elements.
    NextStrip(std::int64_t channels, std::int64_t distance, std::int64_t group)
        : channels_(channels) {
        const auto bytes = distance * static_cast<std::int64_t>(sizeof(Element));
        const bool narrow = is_one_strip<Element>(channels);
        rest_ = distance * (narrow ? std::max<std::int64_t>(kAheadBytes / bytes, 1) : group);
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

template <class Element, class Row>
struct StripsOfGroup {
    const Row& row;
    Range group;
    const NextStrip<Element>& next;

    template <std::int64_t kVectors, class Part>
    HWY_INLINE void columns(std::int64_t channel, Part part) const {
        row.template strip<kVectors>(group, channel, next.from(channel), part);
    }
};

// row.strip<vectors>(pixels, first channel, elements ahead to prefetch, part) for the strips of one
// group of pixels behind the other: all pixels are one where a strip holds their channels, else
// `wide` of them. `it` has pixels, channels and the distance from pixel to pixel.
template <class Element, class Pixels, class Row>
HWY_INLINE void in_strips(const Pixels& it, std::int64_t wide, const Row& row) {
    const NextStrip<Element> next(it.channels, it.distance, wide);
    const bool narrow = is_one_strip<Element>(it.channels);
    const std::int64_t group = narrow ? it.pixels : wide;
    for (std::int64_t first = 0; first < it.pixels; first += group) {
        const Range pixels{first, std::min(first + group, it.pixels)};
        along_channels<Element, kStrip<Element>>(it.channels,
                                                 StripsOfGroup<Element, Row>{row, pixels, next});
    }
}

template <class Element, class Pixels, class Row>
HWY_INLINE void in_strips(const Pixels& it, const Row& row) {
    in_strips<Element>(it, pixels_of_group<Element>(it.channels), row);
}

}  // namespace HWY_NAMESPACE
}  // namespace dlprim
HWY_AFTER_NAMESPACE();

#endif
