// What one row of a depthwise filter adds to neighbouring results, for the files that are compiled
// once per vector width: which columns of src are read, how often, and what is multiplied.
#if defined(DLPRIM_PRIMITIVES_DEPTHWISE_TAPS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef DLPRIM_PRIMITIVES_DEPTHWISE_TAPS_INL_H
#undef DLPRIM_PRIMITIVES_DEPTHWISE_TAPS_INL_H
#else
#define DLPRIM_PRIMITIVES_DEPTHWISE_TAPS_INL_H
#endif

#include <cstddef>
#include <cstdint>
#include <utility>

#include "primitives/depthwise/depthwise_rows.h"
#include "primitives/tensor/channel_vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dlprim {
namespace HWY_NAMESPACE {

// Results of a row that are summed together: registers for them, for the weights of a filter row
// and for one column of src. (7 divides the widths 7, 14, 28, 56, 112.)
template <class V>
inline constexpr std::int64_t kResults =
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
        add_row(spot, filter, sums, std::make_index_sequence<kTaps>(),
                std::make_index_sequence<(kResults<V> - 1) * kStep + kTaps>());
    }

private:
    template <class Filter, class Spot, class V, std::size_t... kTap, std::size_t... kColumn>
    static HWY_INLINE void add_row(const Spot& spot, const Filter& filter, V* sums,
                                   std::index_sequence<kTap...> taps,
                                   std::index_sequence<kColumn...>) {
        const V weights[kTaps] = {spot.weights(filter, kTap)...};
        auto* column = filter.src + spot.src_offset;
        (add_column<kColumn>(spot, column, weights, sums, taps), ...);
    }

    template <std::size_t kColumn, class Spot, class Element, class V, std::size_t... kTap>
    static HWY_INLINE void add_column(const Spot& spot, const Element*& column, const V* weights,
                                      V* sums, std::index_sequence<kTap...>) {
        if (spot.columns.has(kColumn)) {
            const V src = V::load(column, spot.part);
            (add_tap<kColumn, kTap>(src, weights[kTap], sums), ...);
        }
        column += spot.row.src_distance;
    }

    template <std::size_t kColumn, std::size_t kTap, class V>
    static HWY_INLINE void add_tap(const V& src, const V& weight, V* sums) {
        constexpr bool starts_a_result = kColumn >= kTap && (kColumn - kTap) % kStep == 0;
        constexpr std::size_t result = (kColumn - kTap) / kStep;
        if constexpr (starts_a_result && result < kResults<V>) {
            sums[result].multiply_add(src, weight);
        }
    }
};

// Any number of taps, any distances.
struct AnyTaps {
    static constexpr bool kSteps = false;

    template <class V, class Spot, class Filter>
    static HWY_INLINE void add(const Spot& spot, const Filter& filter, V* sums) {
        for (std::int64_t tap = 0; tap < spot.row.taps; ++tap) {
            add_tap(spot, filter, tap, sums, std::make_index_sequence<kResults<V>>());
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

}  // namespace HWY_NAMESPACE
}  // namespace dlprim
HWY_AFTER_NAMESPACE();

#endif
