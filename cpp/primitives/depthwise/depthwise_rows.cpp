// Compiled once per target, as per_isa.h describes.
#include "primitives/depthwise/depthwise_rows.h"

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "primitives/tensor/per_isa.h"

#define HWY_TARGET_INCLUDE "primitives/depthwise/depthwise_rows.cpp"
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "primitives/tensor/channel_vector-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace dlprim {
namespace HWY_NAMESPACE {
namespace {

// Results of a row that are summed together: registers for them, for the weights of a filter row
// and for one column of src. (7 divides the widths 7, 14, 28, 56, 112.)
template <class V>
inline constexpr int kResults =
    sizeof(typename V::Memory) == kWordBytes || HWY_TARGET <= HWY_AVX3 ? 7 : 4;

// Columns of src that may be read, counted from the first one under a tile.
struct AnyColumn {
    static constexpr bool has(std::int64_t) { return true; }
};
struct ColumnsIn {
    Range range;
    bool has(std::int64_t column) const { return column >= range.begin && column < range.end; }
};

// A row of the filter and the row of src under it.
template <class Element>
struct FilterRow {
    FilterRow(const RowConvolution& row, std::int64_t r)
        : src(static_cast<const Element*>(row.src) + r * row.src_row),
          weights(static_cast<const Element*>(row.weights) + r * row.weights_row) {}

    const Element* src;
    const Element* weights;
};

// What all steps of one tile share.
template <class V, class Columns, class Part>
struct Place {
    using Vector = V;
    using Element = typename V::Memory;

    const RowConvolution& row;  // a local copy: that no store can change it saves loads
    Columns columns;
    Part part;
    std::int64_t channel;     // first one
    std::int64_t src_offset;  // of the first column under the tile
    std::int64_t dst_offset;  // of the first result

    HWY_INLINE Vector weights(const FilterRow<Element>& filter, std::int64_t tap) const {
        const std::int64_t offset = row.first_tap + tap * row.tap_distance + channel;
        return Vector::load(filter.weights + offset, part);
    }
    // Columns count from the first one under the tile.
    HWY_INLINE Vector src(const FilterRow<Element>& filter, std::int64_t column) const {
        return Vector::load(filter.src + src_offset + column * row.src_distance, part);
    }
};

// Neighbouring taps on neighbouring columns, results kStep columns apart: a column is read once
// for all results that it is part of.
template <int kTaps, int kStep>
struct DenseTaps {
    static constexpr bool kSteps = kStep > 1;

    template <class V, class Spot, class Filter>
    static HWY_INLINE void add(const Spot& spot, const Filter& filter, V* sums) {
        V weights[kTaps];
        unrolled<kTaps>([&](auto tap) HWY_ATTR __attribute__((always_inline)) {
            weights[tap] = spot.weights(filter, tap);
        });
        auto* column = filter.src + spot.src_offset;
        unrolled<(kResults<V> - 1) * kStep + kTaps>(
            [&](auto i) HWY_ATTR __attribute__((always_inline)) {
                if (spot.columns.has(i)) {
                    const V src = V::load(column, spot.part);
                    unrolled<kTaps>([&](auto tap) HWY_ATTR __attribute__((always_inline)) {
                        constexpr int kBehind = decltype(i)::value - decltype(tap)::value;
                        if constexpr (kBehind >= 0 && kBehind % kStep == 0 &&
                                      kBehind / kStep < kResults<V>) {
                            sums[kBehind / kStep].multiply_add(src, weights[tap]);
                        }
                    });
                }
                column += spot.row.src_distance;
            });
    }
};

// Any number of taps, any distances.
struct AnyTaps {
    static constexpr bool kSteps = false;

    template <class V, class Spot, class Filter>
    static HWY_INLINE void add(const Spot& spot, const Filter& filter, V* sums) {
        for (std::int64_t tap = 0; tap < spot.row.taps; ++tap) {
            const V weight = spot.weights(filter, tap);
            unrolled<kResults<V>>([&](auto i) HWY_ATTR __attribute__((always_inline)) {
                const std::int64_t column = i * spot.row.step + tap * spot.row.spread;
                if (!spot.columns.has(column)) return;
                sums[i].multiply_add(spot.src(filter, column), weight);
            });
        }
    }
};

template <class V, class Spot>
HWY_INLINE void finish(const Spot& spot, std::int64_t offset, V sum) {
    using Element = typename V::Memory;
    const RowConvolution& row = spot.row;
    if (row.residual != nullptr) {
        sum.add(V::load(static_cast<const Element*>(row.residual) + offset, spot.part));
    }
    if (row.relu) sum.relu();
    sum.store(static_cast<Element*>(row.dst) + offset, spot.part);
}

template <class Taps, class Spot>
HWY_INLINE void convolve_vector(const Spot& spot, std::int64_t results) {
    using V = typename Spot::Vector;
    const RowConvolution& row = spot.row;
    V start = V::zero();
    if (row.bias != nullptr) start = V::load_floats(row.bias + spot.channel, spot.part);
    V sums[kResults<V>];
    unrolled<kResults<V>>([&](auto i) HWY_ATTR __attribute__((always_inline)) { sums[i] = start; });
    for (std::int64_t r = 0; r < row.row_count; ++r) {
        Taps::add(spot, FilterRow<typename V::Memory>(row, r), sums);
    }
    std::int64_t offset = spot.dst_offset;
    unrolled<kResults<V>>([&](auto i) HWY_ATTR __attribute__((always_inline)) {
        if (i < results) finish(spot, offset, sums[i]);
        offset += row.dst_distance;
    });
}

// Columns of src with a step between results: most of the traffic is src then. Pixels that
// follow each other in memory are fetched in its order, a part of them with every vector of
// channels.
template <class V>
HWY_INLINE void fetch_columns(const RowConvolution& row, const typename V::Memory* src,
                              std::int64_t columns, std::int64_t channel) {
    constexpr std::int64_t n = V::kChannels;
    if (row.src_distance >= row.channels + n) {
        prefetch(src + channel, row.src_distance, columns);
        return;
    }
    const std::int64_t vectors = (row.channels + n - 1) / n;
    const Range part = chunk(columns, vectors, channel / n);
    for (std::int64_t column = part.begin; column < part.end; ++column) {
        prefetch(src + column * row.src_distance, n, vectors);
    }
}

// Reads in tiles are more than the hardware's prefetchers see through.
template <class V>
HWY_INLINE void fetch_rows(const RowConvolution& row, Range results, std::int64_t channel) {
    using Element = typename V::Memory;
    const std::int64_t column = row.column + results.begin * row.step;
    for (std::int64_t r = row.row_count - row.fresh_rows; r < row.row_count; ++r) {
        const Element* const src =
            FilterRow<Element>(row, r).src + row.src_ahead + column * row.src_distance;
        if (row.step == 1) {
            prefetch<kResults<V>>(src + channel, row.src_distance);
        } else {
            fetch_columns<V>(row, src, results.size() * row.step, channel);
        }
    }
    if (row.step > 1) return;
    const auto* dst = static_cast<const Element*>(row.dst) + row.dst_ahead + channel;
    prefetch<kResults<V>>(dst + results.begin * row.dst_distance, row.dst_distance);
}

// Apart from the sums, which need the registers. With steps memory is what sets the time, and
// prefetches among the sums gain a third. A prefetch is no effect to GCC: were callers to look into
// this function, they would leave out its calls. (Clang counts a prefetch as one.)
#if HWY_HAS_ATTRIBUTE(noipa)
#define DLPRIM_OPAQUE __attribute__((noipa))
#else
#define DLPRIM_OPAQUE HWY_NOINLINE
#endif
template <class V>
DLPRIM_OPAQUE void fetch_ahead(const RowConvolution& row, Range results, std::int64_t channel) {
    fetch_rows<V>(row, results, channel);
}
#undef DLPRIM_OPAQUE

// Some neighbouring results of a row.
struct Tile {
    Range results;
    std::int64_t src;  // offsets of the first column and the first result
    std::int64_t dst;
};

// Whole vectors from `channel` on; returns the channel behind them.
template <class V, class Wide, class Taps, class Columns>
HWY_INLINE std::int64_t convolve_channels(const RowConvolution& row, const Tile& tile,
                                          Columns columns, std::int64_t channel) {
    for (; channel + V::kChannels <= row.channels; channel += V::kChannels) {
        if (row.fetches) {
            if constexpr (Taps::kSteps) {
                fetch_rows<Wide>(row, tile.results, channel);
            } else {
                fetch_ahead<Wide>(row, tile.results, channel);
            }
        }
        const Place<V, Columns, All> place{
            row, columns, {}, channel, tile.src + channel, tile.dst + channel};
        convolve_vector<Taps>(place, tile.results.size());
    }
    return channel;
}

template <class V, class Taps, class Columns>
HWY_INLINE void convolve_whole_vectors(const RowConvolution& row, const Tile& tile,
                                       Columns columns) {
    const std::int64_t channel = convolve_channels<V, V, Taps>(row, tile, columns, 0);
    if constexpr (!std::is_same_v<V, typename V::Narrow>) {
        convolve_channels<typename V::Narrow, V, Taps>(row, tile, columns, channel);
    }
}

template <class V, class Taps>
HWY_INLINE void convolve_tile(const RowConvolution& row, Range results) {
    const std::int64_t column = row.column + results.begin * row.step;
    const std::int64_t behind =
        (results.size() - 1) * row.step + std::max<std::int64_t>(row.taps - 1, 0) * row.spread + 1;
    const ColumnsIn columns{{-column, std::min(behind, row.width - column)}};
    const Tile tile{results, column * row.src_distance, results.begin * row.dst_distance};
    if (results.size() == kResults<V> && columns.range.begin <= 0 && columns.range.end == behind) {
        convolve_whole_vectors<V, Taps>(row, tile, AnyColumn());
    } else {
        convolve_whole_vectors<V, Taps>(row, tile, columns);
    }
    using Narrow = typename V::Narrow;
    const std::int64_t rest = row.channels % Narrow::kChannels;
    if (rest == 0) return;
    const std::int64_t c = row.channels - rest;
    if (row.fetches) fetch_ahead<V>(row, results, c);
    const Place<Narrow, ColumnsIn, First> place{row, columns,      {rest},
                                                c,   tile.src + c, tile.dst + c};
    convolve_vector<Taps>(place, results.size());
}

// With steps the time is that of memory, and tiles that follow each other more slowly find more
// of their columns fetched: a third faster on Zen 5 from memory, the same from the caches.
template <class V, class Taps>
HWY_NOINLINE void convolve_tile_from_memory(const RowConvolution& row, Range results) {
    convolve_tile<V, Taps>(row, results);
}

template <class V, class Taps>
void convolve_with(const RowConvolution& given) {
    const RowConvolution row = given;
    const Blocks tiles{row.results, kResults<V>};
    for (std::int64_t i = 0; i < tiles.count(); ++i) {
        if constexpr (Taps::kSteps) {
            convolve_tile_from_memory<V, Taps>(row, tiles.at(i));
        } else {
            convolve_tile<V, Taps>(row, tiles.at(i));
        }
    }
}

template <class V>
void convolve_row(const RowConvolution& row) {
    // The lowest level does with any taps: it is compiled to be there, not to be fast.
    if constexpr (HWY_TARGET != HWY_SCALAR) {
        if (row.spread == 1 && row.step == 1) {
            if (row.taps == 2) return convolve_with<V, DenseTaps<2, 1>>(row);
            if (row.taps == 3) return convolve_with<V, DenseTaps<3, 1>>(row);
            if (row.taps == 5) return convolve_with<V, DenseTaps<5, 1>>(row);
            if (row.taps == 7) return convolve_with<V, DenseTaps<7, 1>>(row);
        }
        if (row.spread == 1 && row.step == 2) {
            if (row.taps == 3) return convolve_with<V, DenseTaps<3, 2>>(row);
            if (row.taps == 5) return convolve_with<V, DenseTaps<5, 2>>(row);
        }
    }
    convolve_with<V, AnyTaps>(row);
}

ConvolveRow convolve_row_of(DType dtype) {
    return dtype == DType::f32 ? convolve_row<ChannelVector<float>>
                               : convolve_row<ChannelVector<std::uint16_t>>;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dlprim
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dlprim {

ConvolveRow convolve_row_function(Isa isa, DType dtype) {
    return DLPRIM_FOR_ISA(isa, convolve_row_of)(dtype);
}

}  // namespace dlprim
#endif
