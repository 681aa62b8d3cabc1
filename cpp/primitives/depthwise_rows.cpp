// Compiled once per target, as pack_rows.cpp.
#include "primitives/depthwise_rows.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#define HWY_TARGET_INCLUDE "primitives/depthwise_rows.cpp"
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "primitives/channel_vector-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace dlprim {
namespace HWY_NAMESPACE {
namespace {

// Results of a row that are summed together: registers for them, for the weights of a filter row
// and for one column of src. (7 divides the widths 7, 14, 28, 56, 112.)
template <class Element>
inline constexpr std::int64_t kResults =
    sizeof(Element) == kWordBytes || HWY_TARGET <= HWY_AVX3 ? 7 : 4;

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
template <class Element, class Columns, class Part>
struct Place {
    const RowConvolution& row;  // a local copy: that no store can change it saves loads
    Columns columns;
    Part part;
    std::int64_t channel;     // first one
    std::int64_t src_offset;  // of the first column under the tile
    std::int64_t dst_offset;  // of the first result

    using Vector = ChannelVector<Element>;
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
    template <class Element, class Spot>
    static HWY_INLINE void add(const Spot& spot, const FilterRow<Element>& filter,
                               ChannelVector<Element>* sums) {
        add_row(spot, filter, sums, std::make_index_sequence<kTaps>(),
                std::make_index_sequence<(kResults<Element> - 1) * kStep + kTaps>());
    }

private:
    template <class Filter, class Spot, class V, std::size_t... kTap, std::size_t... kColumn>
    static HWY_INLINE void add_row(const Spot& spot, const Filter& filter, V* sums,
                                   std::index_sequence<kTap...> taps,
                                   std::index_sequence<kColumn...>) {
        const V weights[kTaps] = {spot.weights(filter, kTap)...};
        (add_column<kColumn>(spot, filter, weights, sums, taps), ...);
    }

    template <std::size_t kColumn, class Filter, class Spot, class V, std::size_t... kTap>
    static HWY_INLINE void add_column(const Spot& spot, const Filter& filter, const V* weights,
                                      V* sums, std::index_sequence<kTap...>) {
        if (!spot.columns.has(kColumn)) return;
        const V src = spot.src(filter, kColumn);
        (add_tap<kColumn, kTap>(src, weights[kTap], sums), ...);
    }

    template <std::size_t kColumn, std::size_t kTap, class V>
    static HWY_INLINE void add_tap(const V& src, const V& weight, V* sums) {
        constexpr bool starts_a_result = kColumn >= kTap && (kColumn - kTap) % kStep == 0;
        constexpr std::size_t result = (kColumn - kTap) / kStep;
        if constexpr (starts_a_result && result < ResultCount<V>::value) {
            sums[result].multiply_add(src, weight);
        }
    }

    template <class V>
    struct ResultCount;
    template <class Element>
    struct ResultCount<ChannelVector<Element>> {
        static constexpr std::size_t value = kResults<Element>;
    };
};

// Any number of taps, any distances.
struct AnyTaps {
    template <class Element, class Spot>
    static HWY_INLINE void add(const Spot& spot, const FilterRow<Element>& filter,
                               ChannelVector<Element>* sums) {
        for (std::int64_t tap = 0; tap < spot.row.taps; ++tap) {
            add_tap(spot, filter, tap, sums, std::make_index_sequence<kResults<Element>>());
        }
    }

private:
    template <class Filter, class Spot, class V, std::size_t... kResult>
    static HWY_INLINE void add_tap(const Spot& spot, const Filter& filter, std::int64_t tap,
                                   V* sums, std::index_sequence<kResult...>) {
        const V weight = spot.weights(filter, tap);
        (add_product(spot, filter, weight,
                     static_cast<std::int64_t>(kResult) * spot.row.step + tap * spot.row.spread,
                     sums[kResult]),
         ...);
    }

    template <class Filter, class Spot, class V>
    static HWY_INLINE void add_product(const Spot& spot, const Filter& filter, const V& weight,
                                       std::int64_t column, V& sum) {
        if (spot.columns.has(column)) sum.multiply_add(spot.src(filter, column), weight);
    }
};

template <class Element, class Spot>
HWY_INLINE void finish(const Spot& spot, std::int64_t result, ChannelVector<Element> sum) {
    const RowConvolution& row = spot.row;
    const std::int64_t offset = spot.dst_offset + result * row.dst_distance;
    if (row.residual != nullptr) {
        sum.add(ChannelVector<Element>::load(static_cast<const Element*>(row.residual) + offset,
                                             spot.part));
    }
    if (row.relu) sum.relu();
    sum.store(static_cast<Element*>(row.dst) + offset, spot.part);
}

template <class Element, class Taps, class Spot, std::size_t... kResult>
HWY_INLINE void convolve_vector(const Spot& spot, std::int64_t results,
                                std::index_sequence<kResult...>) {
    using V = ChannelVector<Element>;
    const RowConvolution& row = spot.row;
    V start = V::zero();
    if (row.bias != nullptr) start = V::load_floats(row.bias + spot.channel, spot.part);
    V sums[] = {(static_cast<void>(kResult), start)...};
    for (std::int64_t r = 0; r < row.row_count; ++r) {
        Taps::template add<Element>(spot, FilterRow<Element>(row, r), sums);
    }
    ((static_cast<std::int64_t>(kResult) < results
          ? finish<Element>(spot, static_cast<std::int64_t>(kResult), sums[kResult])
          : static_cast<void>(0)),
     ...);
}

// Columns of src with a step between results: most of the traffic is src then. Pixels that follow
// each other in memory are fetched in its order, a part of them with every vector of channels.
template <class Element>
HWY_INLINE void fetch_columns(const RowConvolution& row, const Element* src, std::int64_t columns,
                              std::int64_t channel) {
    constexpr std::int64_t n = ChannelVector<Element>::kChannels;
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
template <class Element>
HWY_INLINE void fetch_ahead(const RowConvolution& row, Range results, std::int64_t channel) {
    const std::int64_t column = row.column + results.begin * row.step;
    for (std::int64_t r = row.row_count - row.fresh_rows; r < row.row_count; ++r) {
        const Element* const src =
            FilterRow<Element>(row, r).src + row.src_ahead + column * row.src_distance;
        if (row.step == 1) {
            prefetch<kResults<Element>>(src + channel, row.src_distance);
        } else {
            fetch_columns(row, src, results.size() * row.step, channel);
        }
    }
    if (row.step > 1) return;
    const auto* dst = static_cast<const Element*>(row.dst) + row.dst_ahead + channel;
    prefetch<kResults<Element>>(dst + results.begin * row.dst_distance, row.dst_distance);
}

template <class Element, class Taps>
HWY_INLINE void convolve_tile(const RowConvolution& row, Range results) {
    constexpr std::int64_t n = ChannelVector<Element>::kChannels;
    constexpr std::make_index_sequence<kResults<Element>> sums;
    const std::int64_t column = row.column + results.begin * row.step;
    const std::int64_t behind =
        (results.size() - 1) * row.step + std::max<std::int64_t>(row.taps - 1, 0) * row.spread + 1;
    const ColumnsIn columns{{-column, std::min(behind, row.width - column)}};
    const bool interior = results.size() == kResults<Element> && columns.range.begin <= 0 &&
                          columns.range.end == behind;
    const std::int64_t src = column * row.src_distance;
    const std::int64_t dst = results.begin * row.dst_distance;
    std::int64_t c = 0;
    for (; c + n <= row.channels; c += n) {
        fetch_ahead<Element>(row, results, c);
        if (interior) {
            const Place<Element, AnyColumn, All> place{row, {}, {}, c, src + c, dst + c};
            convolve_vector<Element, Taps>(place, kResults<Element>, sums);
        } else {
            const Place<Element, ColumnsIn, All> place{row, columns, {}, c, src + c, dst + c};
            convolve_vector<Element, Taps>(place, results.size(), sums);
        }
    }
    if (c < row.channels) {
        fetch_ahead<Element>(row, results, c);
        const First rest{row.channels - c};
        const Place<Element, ColumnsIn, First> place{row, columns, rest, c, src + c, dst + c};
        convolve_vector<Element, Taps>(place, results.size(), sums);
    }
}

template <class Element, class Taps>
void convolve_with(const RowConvolution& given) {
    const RowConvolution row = given;
    const Blocks tiles{row.results, kResults<Element>};
    for (std::int64_t i = 0; i < tiles.count(); ++i) convolve_tile<Element, Taps>(row, tiles.at(i));
}

// With steps the time is that of memory, and tiles that follow each other more slowly find more of
// their columns fetched: a third faster on Zen 5 from memory, the same from the caches.
template <class Element, class Taps>
HWY_NOINLINE void convolve_tile_from_memory(const RowConvolution& row, Range results) {
    convolve_tile<Element, Taps>(row, results);
}

template <class Element, class Taps>
void convolve_with_steps(const RowConvolution& row) {
    const Blocks tiles{row.results, kResults<Element>};
    for (std::int64_t i = 0; i < tiles.count(); ++i) {
        convolve_tile_from_memory<Element, Taps>(row, tiles.at(i));
    }
}

template <class Element>
void convolve_row(const RowConvolution& row) {
    if (row.spread == 1 && row.step == 1) {
        if (row.taps == 2) return convolve_with<Element, DenseTaps<2, 1>>(row);
        if (row.taps == 3) return convolve_with<Element, DenseTaps<3, 1>>(row);
        if (row.taps == 5) return convolve_with<Element, DenseTaps<5, 1>>(row);
        if (row.taps == 7) return convolve_with<Element, DenseTaps<7, 1>>(row);
    }
    if (row.spread == 1 && row.step == 2) {
        if (row.taps == 3) return convolve_with_steps<Element, DenseTaps<3, 2>>(row);
        if (row.taps == 5) return convolve_with_steps<Element, DenseTaps<5, 2>>(row);
    }
    convolve_with<Element, AnyTaps>(row);
}

ConvolveRow convolve_row_of(DType dtype) {
    return dtype == DType::f32 ? convolve_row<float> : convolve_row<std::uint16_t>;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dlprim
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dlprim {

ConvolveRow convolve_row_function([[maybe_unused]] Isa isa, DType dtype) {
#if HWY_TARGETS & HWY_AVX3
    if (isa >= Isa::avx512) return N_AVX3::convolve_row_of(dtype);
#endif
#if HWY_TARGETS & HWY_AVX2
    if (isa >= Isa::avx2) return N_AVX2::convolve_row_of(dtype);
#endif
    return HWY_STATIC_DISPATCH(convolve_row_of)(dtype);
}

}  // namespace dlprim
#endif
