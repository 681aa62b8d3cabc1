// Compiled once per target, as per_isa.h describes.
#include <cstdint>
#include <utility>

#include "primitives/tensor/per_isa.h"
#include "primitives/winograd/winograd_transform.h"

#define HWY_TARGET_INCLUDE "primitives/winograd/winograd_expand.cpp"
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "primitives/winograd/winograd_axis-inl.h"
#include "primitives/winograd/winograd_filter_axis-inl.h"
#include "primitives/winograd/winograd_channels-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace dlprim {
namespace HWY_NAMESPACE {
namespace {

constexpr int kMostPixels = 6;  // along one axis

// Pixels at equal distances, all of them there.
template <class Element>
struct Inside {
    using Type = typename Element::Type;
    const Type* first;
    std::int64_t row;
    std::int64_t pixel;

    template <class H, class W>
    static HWY_INLINE Inside of(const TilePatch& patch) {
        return {static_cast<const Type*>(patch.first), patch.row, patch.pixel};
    }
    template <class Part>
    HWY_INLINE FloatVector at(int i, int j, std::int64_t channel, Part part) const {
        return Element::load(first + i * row + j * pixel + channel, part);
    }
};

// Pixels one by one, those outside replaced by zeros.
template <class Element>
struct AtTheRim {
    using Type = typename Element::Type;
    const Type* pixels[kMostPixels * kMostPixels];

    template <class H, class W>
    static HWY_INLINE AtTheRim of(const TilePatch& patch) {
        alignas(64) static constexpr Type zeros[kWinogradChannels] = {};
        AtTheRim made;
        const auto* const first = static_cast<const Type*>(patch.first);
        for (int i = 0; i < H::kIn; ++i) {
            const bool row_exists = i >= patch.rows_begin && i < patch.rows_end;
            for (int j = 0; j < W::kIn; ++j) {
                const bool exists = row_exists && j >= patch.columns_begin && j < patch.columns_end;
                made.pixels[i * kMostPixels + j] =
                    exists ? first + i * patch.row + j * patch.pixel : zeros;
            }
        }
        return made;
    }
    template <class Part>
    HWY_INLINE FloatVector at(int i, int j, std::int64_t channel, Part part) const {
        return Element::load(pixels[i * kMostPixels + j] + channel, part);
    }
};

// Where the slots of one vector of channels go.
struct Slots {
    float* first;
    std::int64_t stride;

    HWY_INLINE void store(int slot, FloatVector values) const {
        hn::StoreU(values, Floats(), first + slot * stride);
    }
};

template <class W, int kPass>
HWY_INLINE void along_row(int slot_row, const FloatVector* row, const Slots& slots) {
    FloatVector x;
    FloatVector y;
    W::template expand<kPass>(row, x, y);
    slots.store(slot_row * W::kSlots + W::first(kPass), x);
    if constexpr (W::second(kPass) != kNoSlot) {
        slots.store(slot_row * W::kSlots + W::second(kPass), y);
    }
}

template <class W, int... kPasses>
HWY_INLINE void along_row(std::integer_sequence<int, kPasses...>, int slot_row,
                          const FloatVector* row, const Slots& slots) {
    (along_row<W, kPasses>(slot_row, row, slots), ...);
}

template <class H, int kPass, class Pixels, class Part, int... kRows>
HWY_INLINE void along_column(std::integer_sequence<int, kRows...>, const Pixels& pixels, int j,
                             std::int64_t channel, Part part, FloatVector* xy) {
    const FloatVector column[] = {pixels.at(kRows, j, channel, part)...};
    H::template expand<kPass>(column, xy[0], xy[kMostPixels]);
}

// The slots of up to two rows of points: first down every column of pixels, then along the rows.
template <class H, class W, int kPass, class Pixels, class Part, int... kColumns>
HWY_INLINE void two_rows(std::integer_sequence<int, kColumns...>, const Pixels& pixels,
                         std::int64_t channel, Part part, const Slots& slots) {
    FloatVector rows[2 * kMostPixels];
    (along_column<H, kPass>(std::make_integer_sequence<int, H::kIn>(), pixels, kColumns, channel,
                            part, rows + kColumns),
     ...);
    constexpr std::make_integer_sequence<int, W::kPasses> passes;
    along_row<W>(passes, H::first(kPass), rows, slots);
    if constexpr (H::second(kPass) != kNoSlot) {
        along_row<W>(passes, H::second(kPass), rows + kMostPixels, slots);
    }
}

template <class H, class W, class Pixels, class Part, int... kPasses>
HWY_INLINE void all_rows(std::integer_sequence<int, kPasses...>, const Pixels& pixels,
                         std::int64_t channel, Part part, const Slots& slots) {
    (two_rows<H, W, kPasses>(std::make_integer_sequence<int, W::kIn>(), pixels, channel, part,
                             slots),
     ...);
}

template <class H, class W, class Pixels>
void expand(const TilePatch& patch) {
    constexpr std::make_integer_sequence<int, H::kPasses> passes;
    const auto pixels = Pixels::template of<H, W>(patch);
    [[maybe_unused]] const auto* const first =
        static_cast<const typename Pixels::Type*>(patch.first);
    std::int64_t channel = 0;
    for (; channel + kFloatLanes <= patch.channels; channel += kFloatLanes) {
        if constexpr (W::kStep > 0) {
            fetch_pixels(first + channel, patch.row, patch.pixel, H::kIn, W::kIn,
                         W::kIn + W::kStep);
        }
        all_rows<H, W>(passes, pixels, channel, All(), {patch.slots + channel, patch.slot_stride});
    }
    if (channel < patch.channels) {
        all_rows<H, W>(passes, pixels, channel, First{patch.channels - channel},
                       {patch.slots + channel, patch.slot_stride});
    }
}

template <template <int> class Axis, class Element>
ExpandFunction at_the_rim(int tile_h, int tile_w) {
    using Pixels = AtTheRim<Element>;
    if (tile_h == 2) return expand<Axis<2>, Axis<2>, Pixels>;
    if (tile_h == 4) {
        return tile_w == 4 ? expand<Axis<4>, Axis<4>, Pixels> : expand<Axis<4>, Axis<3>, Pixels>;
    }
    return tile_w == 4 ? expand<Axis<3>, Axis<4>, Pixels> : expand<Axis<3>, Axis<3>, Pixels>;
}

template <class Element>
ExpandFunction of_input(int tile_h, int tile_w, bool inside) {
    if (inside && tile_h == 4 && tile_w == 4) {
        return expand<InputAxis<4>, InputAxis<4>, Inside<Element>>;
    }
    return at_the_rim<InputAxis, Element>(tile_h, tile_w);
}

template <class Element>
ExpandFunction of_filter(int tile) {
    return tile == 2 ? expand<FilterAxis<2>, FilterAxis<2>, Inside<Element>>
                     : expand<FilterAxis<4>, FilterAxis<4>, Inside<Element>>;
}

ExpandFunction expand_of(PatchKind kind, DType dtype, int tile_h, int tile_w, bool inside) {
    const bool is_float = dtype == DType::f32;
    switch (kind) {
        case PatchKind::input:
            return is_float ? of_input<InMemory<float>>(tile_h, tile_w, inside)
                            : of_input<InMemory<std::uint16_t>>(tile_h, tile_w, inside);
        case PatchKind::gradient:
            return is_float ? at_the_rim<GradientAxis, InMemory<float>>(tile_h, tile_w)
                            : at_the_rim<GradientAxis, InMemory<std::uint16_t>>(tile_h, tile_w);
        case PatchKind::filter: return of_filter<InMemory<float>>(tile_h);
        case PatchKind::even_pair_filter: return of_filter<EvenOfPair>(tile_h);
        default: return of_filter<OddOfPair>(tile_h);
    }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dlprim
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dlprim {

ExpandFunction expand_function(Isa isa, PatchKind kind, DType dtype, int tile_h, int tile_w,
                               bool inside) {
    return DLPRIM_FOR_ISA(isa, expand_of)(kind, dtype, tile_h, tile_w, inside);
}

}  // namespace dlprim
#endif
