// Compiled once per target, as per_isa.h describes.
#include "primitives/layers/relu_backward_rows.h"

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "primitives/tensor/per_isa.h"

#define HWY_TARGET_INCLUDE "primitives/layers/relu_backward_rows.cpp"
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "primitives/tensor/bfloat16-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace dlprim {
namespace HWY_NAMESPACE {
namespace {

float value_of(float value) { return value; }
float value_of(std::uint16_t half) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(half) << 16);
}

// What decides which elements pass. at() moves from the first pixel to another; `single` asks about
// one channel, `vector` lets through what passes of as many channels as D has lanes. It does so
// with And, not by a mask: the compiler would make one masked load of it, which does not start the
// hardware's prefetching (AMD Zen 5: 6 GB/s from memory instead of 26).

struct Everything {
    Everything at(std::int64_t) const { return {}; }
    bool single(std::int64_t) const { return true; }

#if HWY_TARGET != HWY_SCALAR
    template <class D>
    HWY_INLINE Vector<D> vector(D, Vector<D> values, std::int64_t) const {
        return values;
    }
#endif
};

template <class Element>
struct Results {
    const Element* dst;
    std::int64_t distance;

    Results at(std::int64_t pixel) const { return {dst + pixel * distance, distance}; }
    bool single(std::int64_t channel) const { return !(value_of(dst[channel]) <= 0); }

#if HWY_TARGET != HWY_SCALAR
    template <class D>
    HWY_INLINE Vector<D> vector(D d, Vector<D> values, std::int64_t channel) const {
        const auto results = hn::LoadU(d, dst + channel);
        if constexpr (std::is_same_v<Element, float>) {
            return hn::AndNot(hn::VecFromMask(d, hn::Le(results, hn::Zero(d))), values);
        } else {
            // As signed integers: -inf is -128, a NaN with a sign is above it, -0 the lowest.
            const hn::RebindToSigned<D> integers;
            const auto bits = hn::BitCast(integers, results);
            const auto above = hn::BitCast(
                d, hn::VecFromMask(integers, hn::Gt(bits, hn::Set(integers, std::int16_t{-128}))));
            const auto zero = hn::VecFromMask(d, hn::Eq(results, hn::Zero(d)));
            return hn::And(hn::AndNot(zero, above), values);
        }
    }
#endif
};

struct MaskBits {
    const std::uint8_t* bits;
    std::int64_t distance;

    MaskBits at(std::int64_t pixel) const { return {bits + pixel * distance, distance}; }
    bool single(std::int64_t channel) const { return (bits[channel / 8] >> channel % 8 & 1) != 0; }

#if HWY_TARGET != HWY_SCALAR
    // LoadMaskBits may read eight bytes, more than there are. `channel` is a multiple of the lanes.
    template <class D>
    HWY_INLINE Vector<D> vector(D d, Vector<D> values, std::int64_t channel) const {
        std::uint8_t copy[8] = {};
        if constexpr (lanes<D> < 8) {
            copy[0] = static_cast<std::uint8_t>(bits[channel / 8] >> channel % 8);
        } else {
            std::memcpy(copy, bits + channel / 8, lanes<D> / 8);
        }
        return hn::And(hn::VecFromMask(d, hn::LoadMaskBits(d, copy)), values);
    }
#endif
};

#if HWY_TARGET != HWY_SCALAR
template <class D>
HWY_INLINE void add_floats(D d, Vector<D> values, float* sums) {
    hn::StoreU(hn::Add(hn::LoadU(d, sums), values), d, sums);
}

template <class D>
HWY_INLINE void add_to(D d, Vector<D> values, float* sums) {
    if constexpr (std::is_same_v<hn::TFromD<D>, float>) {
        add_floats(d, values, sums);
    } else {
        const hn::Half<D> half;
        const hn::RepartitionToWide<D> words;
        const hn::RebindToFloat<decltype(words)> floats;
        const auto low = hn::PromoteTo(words, hn::LowerHalf(half, values));
        const auto high = hn::PromoteTo(words, hn::UpperHalf(half, values));
        add_floats(floats, hn::BitCast(floats, hn::ShiftLeft<16>(low)), sums);
        add_floats(floats, hn::BitCast(floats, hn::ShiftLeft<16>(high)), sums + lanes<D> / 2);
    }
}
#endif

template <class Element, class Gate>
struct Pixel {
    Gate gate;
    const Element* diff_dst;
    Element* out;
    float* sums;

    void single(std::int64_t channel) const {
        const Element passed = gate.single(channel) ? diff_dst[channel] : Element{0};
        if (out != nullptr) out[channel] = passed;
        if (sums != nullptr) sums[channel] += value_of(passed);
    }

#if HWY_TARGET != HWY_SCALAR
    template <class D>
    HWY_INLINE void vector(D d, std::int64_t channel) const {
        const auto passed = gate.vector(d, hn::LoadU(d, diff_dst + channel), channel);
        if (out != nullptr) hn::StoreU(passed, d, out + channel);
        if (sums != nullptr) add_to(d, passed, sums + channel);
    }
#endif
};

#if HWY_TARGET != HWY_SCALAR
// Ever shorter vectors towards the end: overlapping ones would add a channel twice.
template <class D, class Row>
HWY_INLINE void along_vectors(D d, const Row& row, std::int64_t i, std::int64_t channels) {
    for (; i + lanes<D> <= channels; i += lanes<D>) row.vector(d, i);
    if (i == channels) return;
    if constexpr (can_be_halved<D>) {
        along_vectors(hn::Half<D>(), row, i, channels);
    } else {
        for (; i < channels; ++i) row.single(i);
    }
}
#endif

template <class Element, class Row>
HWY_INLINE void along(const Row& row, std::int64_t channels) {
#if HWY_TARGET != HWY_SCALAR
    along_vectors(hn::ScalableTag<Element>(), row, 0, channels);
#else
    for (std::int64_t i = 0; i < channels; ++i) row.single(i);
#endif
}

template <class Element, class Gate>
void pass(const ReluPixels& it, const Gate& gate) {
    const auto* const diff_dst = static_cast<const Element*>(it.diff_dst);
    auto* const out = static_cast<Element*>(it.out);
    for (std::int64_t pixel = 0; pixel < it.pixels; ++pixel) {
        const std::int64_t offset = pixel * it.distance;
        along<Element>(Pixel<Element, Gate>{gate.at(pixel), diff_dst + offset,
                                            out == nullptr ? nullptr : out + offset, it.sums},
                       it.channels);
    }
}

template <class Element>
void relu_pixels(const ReluPixels& it) {
    if (it.relu_mask != nullptr) {
        pass<Element>(it, MaskBits{it.relu_mask, it.mask_distance});
    } else if (it.dst != nullptr) {
        pass<Element>(it, Results<Element>{static_cast<const Element*>(it.dst), it.distance});
    } else {
        pass<Element>(it, Everything{});
    }
}

ReluPixelsFunction relu_pixels_of(DType dtype) {
    return dtype == DType::f32 ? relu_pixels<float> : relu_pixels<std::uint16_t>;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dlprim
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dlprim {

ReluPixelsFunction relu_pixels_function(Isa isa, DType dtype) {
    return DLPRIM_FOR_ISA(isa, relu_pixels_of)(dtype);
}

}  // namespace dlprim
#endif
