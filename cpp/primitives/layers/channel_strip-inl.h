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
#include "primitives/layers/channel_panels.h"
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

// About as far ahead as is prefetched: the hardware's prefetchers do not look beyond a page, nor
// along strips.
constexpr std::int64_t kAheadBytes = 2 * 1024;

template <class Element, class Row>
struct StripsOfGroup {
    const Row& row;
    Range group;
    std::int64_t channels;
    bool narrow;
    std::int64_t next;  // elements from this group to the one that is read next

    // Prefetched is, for a vector, that of the same pixel's next strip, behind the last one that of
    // the next group's first.
    template <std::int64_t kVectors, class Part>
    HWY_INLINE void columns(std::int64_t channel, Part part) const {
        const bool last = channel + kStripChannels<Element> >= channels;
        const std::int64_t behind = last ? next - channel : kStripChannels<Element>;
        row.template strip<kVectors>(group, channel, narrow ? next : behind, part);
    }
};

// row.strip<vectors>(pixels, first channel, elements ahead to prefetch, part) for the strips of one
// group of pixels behind the other: all pixels are one where a strip holds their channels, else
// `wide` of them. By default as many as stay near.
template <class Element, class Row>
HWY_INLINE void in_strips(const PixelRows& it, const Row& row, std::int64_t wide = 0) {
    constexpr auto kBytes = static_cast<std::int64_t>(sizeof(Element));
    if (wide == 0) wide = std::max(kGroupBytes / (it.channels * kBytes), kFewest);
    const bool narrow =
        it.channels == kStripChannels<Element> || it.channels <= ChannelVector<Element>::kChannels;
    const std::int64_t group = narrow ? it.pixels : wide;
    const std::int64_t ahead =
        narrow ? std::max<std::int64_t>(kAheadBytes / (it.distance * kBytes), 1) : wide;
    for (std::int64_t first = 0; first < it.pixels; first += group) {
        const Range pixels{first, std::min(first + group, it.pixels)};
        along_channels<Element, kStrip<Element>>(
            it.channels,
            StripsOfGroup<Element, Row>{row, pixels, it.channels, narrow, it.distance * ahead});
    }
}

}  // namespace HWY_NAMESPACE
}  // namespace dlprim
HWY_AFTER_NAMESPACE();

#endif
