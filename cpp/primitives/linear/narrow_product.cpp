// Compiled once per target, as per_isa.h describes.
#include "primitives/linear/narrow_product.h"

#include <cstdint>

#include "primitives/tensor/per_isa.h"

#define HWY_TARGET_INCLUDE "primitives/linear/narrow_product.cpp"
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "primitives/tensor/channel_vector-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace dlprim {
namespace HWY_NAMESPACE {
namespace {

// Samples that share what is loaded of the weights, each a chain of additions of its own.
constexpr std::int64_t kTogether = 4;

template <std::int64_t kSamples, class Element>
HWY_INLINE void add_products(const NarrowBlock& it, const Element* src, float* sums) {
    using Channels = ChannelVector<Element>;
    Channels products[kSamples];
    for (Channels& each : products) each = Channels::zero();
    const auto step = [&](std::int64_t i, auto part) {
        const auto weights = Channels::load_floats(it.weights + i, part);
        for (std::int64_t sample = 0; sample < kSamples; ++sample) {
            products[sample].multiply_add(Channels::load(src + sample * it.ld_src + i, part),
                                          weights);
        }
    };
    std::int64_t i = 0;
    for (; i + Channels::kChannels <= it.channels; i += Channels::kChannels) step(i, All());
    if (i < it.channels) step(i, First{it.channels - i});
    for (std::int64_t sample = 0; sample < kSamples; ++sample) {
        sums[sample] += products[sample].total();
    }
}

template <class Element>
void narrow(const NarrowBlock& it) {
    const auto* src = static_cast<const Element*>(it.src);
    std::int64_t sample = 0;
    for (; sample + kTogether <= it.samples; sample += kTogether) {
        add_products<kTogether>(it, src + sample * it.ld_src, it.sums + sample);
    }
    for (; sample < it.samples; ++sample) {
        add_products<1>(it, src + sample * it.ld_src, it.sums + sample);
    }
}

NarrowFunction narrow_of(DType dtype) {
    return dtype == DType::f32 ? narrow<float> : narrow<std::uint16_t>;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dlprim
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dlprim {

NarrowFunction narrow_function(Isa isa, DType dtype) {
    return DLPRIM_FOR_ISA(isa, narrow_of)(dtype);
}

}  // namespace dlprim
#endif
