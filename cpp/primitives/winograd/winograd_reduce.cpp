// Compiled once per target, as per_isa.h describes.
#include <cstdint>
#include <utility>

#include "primitives/tensor/per_isa.h"
#include "primitives/winograd/winograd_transform.h"

#define HWY_TARGET_INCLUDE "primitives/winograd/winograd_reduce.cpp"
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

constexpr int kMostSlots = 6;  // along one axis

// Puts the results of one vector of channels where they belong.
template <class Element, class Part>
struct Results {
    using Type = typename Element::Type;
    const TileResult& tile;
    std::int64_t channel;
    Part part;
    FloatVector bias;

    HWY_INLINE Results(const TileResult& it, std::int64_t begin, Part which)
        : tile(it),
          channel(begin),
          part(which),
          bias(it.bias == nullptr ? hn::Zero(Floats())
                                  : load_part(Floats(), it.bias + begin, which)) {}

    HWY_INLINE void put(int i, int j, FloatVector values) const {
        if (i >= tile.rows || j >= tile.columns) return;
        const std::int64_t at = i * tile.row + j * tile.pixel + channel;
        values = plus(values, bias);
        if (tile.residual != nullptr) {
            values =
                plus(values, Element::load(static_cast<const Type*>(tile.residual) + at, part));
        }
        if (tile.relu) values = relu_of(values);
        Element::store(values, static_cast<Type*>(tile.first) + at, part);
    }
};

template <class W, int kPass, class Put>
HWY_INLINE void along_row(int i, const FloatVector* row, const Put& put) {
    FloatVector x;
    FloatVector y;
    W::template reduce<kPass>(row, x, y);
    put.put(i, W::first_result(kPass), x);
    if constexpr (W::second_result(kPass) != kNoSlot) put.put(i, W::second_result(kPass), y);
}

template <class W, class Put, int... kPasses>
HWY_INLINE void along_row(std::integer_sequence<int, kPasses...>, int i, const FloatVector* row,
                          const Put& put) {
    (along_row<W, kPasses>(i, row, put), ...);
}

template <class H, class W, int kPass, int... kRows>
HWY_INLINE void along_column(std::integer_sequence<int, kRows...>, const TileResult& tile,
                             std::int64_t channel, int j, FloatVector* xy) {
    const FloatVector column[] = {
        hn::LoadU(Floats(), tile.slots + (kRows * W::kSlots + j) * tile.slot_stride + channel)...};
    H::template reduce<kPass>(column, xy[0], xy[kMostSlots]);
}

// Up to two rows of results.
template <class H, class W, int kPass, class Put, int... kColumns>
HWY_INLINE void two_rows(std::integer_sequence<int, kColumns...>, const TileResult& tile,
                         std::int64_t channel, const Put& put) {
    FloatVector rows[2 * kMostSlots];
    (along_column<H, W, kPass>(std::make_integer_sequence<int, H::kSlots>(), tile, channel,
                               kColumns, rows + kColumns),
     ...);
    constexpr std::make_integer_sequence<int, W::kResultPasses> passes;
    along_row<W>(passes, H::first_result(kPass), rows, put);
    if constexpr (H::second_result(kPass) != kNoSlot) {
        along_row<W>(passes, H::second_result(kPass), rows + kMostSlots, put);
    }
}

template <class H, class W, class Put, int... kPasses>
HWY_INLINE void all_rows(std::integer_sequence<int, kPasses...>, const TileResult& tile,
                         std::int64_t channel, const Put& put) {
    (two_rows<H, W, kPasses>(std::make_integer_sequence<int, W::kSlots>(), tile, channel, put),
     ...);
}

template <class H, class W, class Element>
void reduce(const TileResult& tile) {
    constexpr std::make_integer_sequence<int, H::kResultPasses> passes;
    [[maybe_unused]] const auto* const first =
        static_cast<const typename Element::Type*>(tile.first);
    std::int64_t channel = 0;
    for (; channel + kFloatLanes <= tile.channels; channel += kFloatLanes) {
        if constexpr (W::kStep > 0) {
            fetch_pixels(first + channel, tile.row, tile.pixel, H::kOut, W::kOut,
                         W::kOut + W::kStep);
        }
        all_rows<H, W>(passes, tile, channel, Results<Element, All>(tile, channel, All()));
    }
    if (channel < tile.channels) {
        const First part{tile.channels - channel};
        all_rows<H, W>(passes, tile, channel, Results<Element, First>(tile, channel, part));
    }
}

template <class Element>
ReduceFunction results_of(int tile_h, int tile_w) {
    if (tile_h == 2) return reduce<ResultAxis<2>, ResultAxis<2>, Element>;
    if (tile_h == 4) {
        return tile_w == 4 ? reduce<ResultAxis<4>, ResultAxis<4>, Element>
                           : reduce<ResultAxis<4>, ResultAxis<3>, Element>;
    }
    return tile_w == 4 ? reduce<ResultAxis<3>, ResultAxis<4>, Element>
                       : reduce<ResultAxis<3>, ResultAxis<3>, Element>;
}

ReduceFunction reduce_of(DType dtype, int tile_h, int tile_w) {
    return dtype == DType::f32 ? results_of<InMemory<float>>(tile_h, tile_w)
                               : results_of<InMemory<std::uint16_t>>(tile_h, tile_w);
}

ReduceFunction filter_gradient_of(int tile) {
    return tile == 2 ? reduce<FilterGradientAxis<2>, FilterGradientAxis<2>, InMemory<float>>
                     : reduce<FilterGradientAxis<4>, FilterGradientAxis<4>, InMemory<float>>;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dlprim
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dlprim {

ReduceFunction reduce_function(Isa isa, DType dtype, int tile_h, int tile_w) {
    return DLPRIM_FOR_ISA(isa, reduce_of)(dtype, tile_h, tile_w);
}

ReduceFunction filter_gradient_function(Isa isa, int tile) {
    return DLPRIM_FOR_ISA(isa, filter_gradient_of)(tile);
}

}  // namespace dlprim
#endif
