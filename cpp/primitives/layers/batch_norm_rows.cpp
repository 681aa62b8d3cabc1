// Compiled once per target, as per_isa.h describes.
#include <cstdint>
#include <type_traits>

#include "primitives/layers/channel_panels.h"
#include "primitives/tensor/per_isa.h"

#define HWY_TARGET_INCLUDE "primitives/layers/batch_norm_rows.cpp"
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "primitives/layers/channel_strip-inl.h"
#include "primitives/layers/relu_gates-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace dlprim {
namespace HWY_NAMESPACE {
namespace {

template <class Element>
HWY_INLINE void fetch(const Element* line) {
    prefetch<1>(line, 0);
}

template <class Element>
struct StatisticsRow {
    const PixelRows& it;

    template <std::int64_t kVectors, class Part>
    HWY_INLINE void strip(Range pixels, std::int64_t channel, std::int64_t ahead, Part part) const {
        using Strip = HWY_NAMESPACE::Strip<Element, kVectors>;
        using Vector = ChannelVector<Element>;
        const auto mean = Strip::of(it.mean, channel, part);
        auto sums = Strip::of(it.sums, channel, part);
        auto squares = Strip::of(it.products, channel, part);
        const auto* src =
            static_cast<const Element*>(it.src) + pixels.begin * it.distance + channel;
        for (std::int64_t pixel = pixels.begin; pixel < pixels.end; ++pixel, src += it.distance) {
            for (std::int64_t i = 0; i < kVectors; ++i) {
                fetch(src + i * Vector::kChannels + ahead);
                const auto centred = Vector::load(src + i * Vector::kChannels, part) - mean.at[i];
                sums.at[i].add(centred);
                squares.at[i].multiply_add(centred, centred);
            }
        }
        sums.store(it.sums, channel, part);
        squares.store(it.products, channel, part);
    }
};

template <class Element, bool kResidual>
struct NormalizeRow {
    const PixelRows& it;

    template <std::int64_t kVectors, class Part>
    HWY_INLINE void strip(Range pixels, std::int64_t channel, std::int64_t ahead, Part part) const {
        using Strip = HWY_NAMESPACE::Strip<Element, kVectors>;
        using Vector = ChannelVector<Element>;
        const auto mean = Strip::of(it.mean, channel, part);
        const auto scale = Strip::of(it.scale, channel, part);
        const auto bias = Strip::of(it.bias, channel, part);
        const auto* const src = static_cast<const Element*>(it.src);
        auto* const out = static_cast<Element*>(it.out);
        for (std::int64_t pixel = pixels.begin; pixel < pixels.end; ++pixel) {
            for (std::int64_t i = 0; i < kVectors; ++i) {
                const std::int64_t column = channel + i * Vector::kChannels;
                const std::int64_t at = pixel * it.distance + column;
                fetch(src + at + ahead);
                fetch(out + at + ahead);
                if constexpr (kResidual) {
                    fetch(static_cast<const Element*>(it.residual) + at + ahead);
                }
                auto value = each(ProductSum(), Vector::load(src + at, part) - mean.at[i],
                                  scale.at[i], bias.at[i]);
                if constexpr (kResidual) {
                    value.add(Vector::load(static_cast<const Element*>(it.residual) + at, part));
                }
                if (it.relu) value.relu();
                value.store(out + at, part);
                if (it.relu_mask_out != nullptr) {
                    store_bits(out + at, it.relu_mask_out + pixel * it.mask_distance, column, part);
                }
            }
        }
    }
};

template <class Element, class Gate, bool kAddend>
struct GradientsRow {
    const PixelRows& it;
    const Gate& gate;

    template <std::int64_t kVectors, class Part>
    HWY_INLINE void strip(Range pixels, std::int64_t channel, std::int64_t ahead, Part part) const {
        using Strip = HWY_NAMESPACE::Strip<Element, kVectors>;
        using Vector = ChannelVector<Element>;
        const auto mean = Strip::of(it.mean, channel, part);
        auto sums = Strip::of(it.sums, channel, part);
        auto products = Strip::of(it.products, channel, part);
        const auto* const src = static_cast<const Element*>(it.src);
        const auto* const diff = static_cast<const Element*>(it.diff_dst);
        auto* const out = static_cast<Element*>(it.out);
        for (std::int64_t pixel = pixels.begin; pixel < pixels.end; ++pixel) {
            for (std::int64_t i = 0; i < kVectors; ++i) {
                const std::int64_t column = channel + i * Vector::kChannels;
                const std::int64_t at = pixel * it.distance + column;
                fetch(src + at + ahead);
                fetch(diff + at + ahead);
                const auto centred = Vector::load(src + at, part) - mean.at[i];
                auto passed = gate(Vector::load(diff + at, part), centred, pixel, column, part);
                if constexpr (kAddend) {
                    const auto* const addend = static_cast<const Element*>(it.diff_addend) + at;
                    fetch(addend + ahead);
                    passed.add(gate(Vector::load(addend, part), centred, pixel, column, part));
                }
                sums.at[i].add(passed);
                products.at[i].multiply_add(passed, centred);
                if (out != nullptr) passed.store(out + at, part);
            }
        }
        sums.store(it.sums, channel, part);
        products.store(it.products, channel, part);
    }
};

template <class Element, class Gate>
struct ApplyRow {
    const PixelRows& it;
    const Gate& gate;

    template <std::int64_t kVectors, class Part>
    HWY_INLINE void strip(Range pixels, std::int64_t channel, std::int64_t ahead, Part part) const {
        using Strip = HWY_NAMESPACE::Strip<Element, kVectors>;
        using Vector = ChannelVector<Element>;
        const auto mean = Strip::of(it.mean, channel, part);
        const auto scale = Strip::of(it.scale, channel, part);
        const auto mean_diff = Strip::of(it.mean_diff, channel, part);
        const auto mean_slope = Strip::of(it.mean_slope, channel, part);
        const auto* const src = static_cast<const Element*>(it.src);
        const auto* const diff = static_cast<const Element*>(it.diff_dst);
        auto* const out = static_cast<Element*>(it.out);
        for (std::int64_t pixel = pixels.begin; pixel < pixels.end; ++pixel) {
            for (std::int64_t i = 0; i < kVectors; ++i) {
                const std::int64_t column = channel + i * Vector::kChannels;
                const std::int64_t at = pixel * it.distance + column;
                fetch(src + at + ahead);
                fetch(diff + at + ahead);
                const auto centred = Vector::load(src + at, part) - mean.at[i];
                const auto passed =
                    gate(Vector::load(diff + at, part), centred, pixel, column, part);
                (each(ProductDifference(), centred, mean_slope.at[i], passed - mean_diff.at[i]) *
                 scale.at[i])
                    .store(out + at, part);
            }
        }
    }
};

template <class Element>
void add_statistics(const PixelRows& it) {
    in_strips<Element>(it, StatisticsRow<Element>{it});
}

template <class Element>
void normalize(const PixelRows& it) {
    if (it.residual == nullptr) {
        in_strips<Element>(it, NormalizeRow<Element, false>{it});
    } else {
        in_strips<Element>(it, NormalizeRow<Element, true>{it});
    }
}

// Calls body with what decides which elements passed relu.
template <class Element, class Body>
HWY_INLINE void with_gate(const PixelRows& it, const Body& body) {
    if (!it.relu) {
        body(NoGate());
    } else if (it.relu_mask == nullptr && it.saved == nullptr) {
        body(RecomputingGate{it.scale, it.bias});
    } else {
        with_stored_gate<Element>(it, body);
    }
}

template <class Element>
void add_gradients(const PixelRows& it) {
    with_gate<Element>(it, [&](const auto& gate) HWY_ATTR {
        using Gate = std::decay_t<decltype(gate)>;
        if (it.diff_addend != nullptr) {
            in_strips<Element>(it, GradientsRow<Element, Gate, true>{it, gate});
        } else {
            in_strips<Element>(it, GradientsRow<Element, Gate, false>{it, gate});
        }
    });
}

template <class Element>
void apply(const PixelRows& it) {
    with_gate<Element>(it, [&](const auto& gate) HWY_ATTR {
        using Gate = std::decay_t<decltype(gate)>;
        in_strips<Element>(it, ApplyRow<Element, Gate>{it, gate});
    });
}

template <class Element>
NormFunctions functions() {
    return {add_statistics<Element>, normalize<Element>, add_gradients<Element>, apply<Element>};
}

NormFunctions norm_functions_of(DType dtype) {
    return dtype == DType::f32 ? functions<float>() : functions<std::uint16_t>();
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dlprim
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dlprim {

NormFunctions norm_functions(Isa isa, DType dtype) {
    return DLPRIM_FOR_ISA(isa, norm_functions_of)(dtype);
}

}  // namespace dlprim
#endif
