// The gradient of depthwise weights, compiled once per target, as per_isa.h describes.
#include <algorithm>
#include <cstdint>

#include "primitives/depthwise/depthwise_rows.h"
#include "primitives/tensor/per_isa.h"

#define HWY_TARGET_INCLUDE "primitives/depthwise/correlate_rows.cpp"
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "primitives/tensor/channel_vector-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace dlprim {
namespace HWY_NAMESPACE {
namespace {

// Filter rows and their taps whose sums are in registers together: a 3 x 3 filter stays there while
// an image goes by.
constexpr int kRows = static_cast<int>(kSummedRows);
constexpr int kMostTaps = 3;
// Columns of diff_dst likewise.
template <class V>
inline constexpr int kPixels = sizeof(typename V::Memory) == kWordBytes ? 7 : 4;

// A part of the filter, from tap (r, s) on, and a vector of channels.
template <class Part>
struct FilterPatch {
    const RowsCorrelation& rows;
    std::int64_t r;
    std::int64_t s;
    std::int64_t channel;
    Part part;
};

// Sums of kRows x kTaps taps in registers. Taps on neighbouring columns, pixels of diff_dst kStep
// columns apart in src; a single tap counts columns that are the stride apart.
template <class V, class Part, int kTaps, int kStep>
class Correlation {
    using Element = typename V::Memory;

public:
    HWY_INLINE explicit Correlation(const FilterPatch<Part>& patch) : patch_(patch) {
        for_sums([](V& sum, float* memory) HWY_ATTR
                 __attribute__((always_inline)) { sum = V::load_floats(memory); });
    }

    HWY_INLINE void add_rows() {
        const RowsCorrelation& rows = patch_.rows;
        for (std::int64_t p = rows.rows.begin; p < rows.rows.end; ++p) add_row(p);
    }

    HWY_INLINE void store() {
        for_sums([](V& sum, float* memory) HWY_ATTR
                 __attribute__((always_inline)) { sum.store_floats(memory); });
    }

private:
    template <class Body>
    HWY_INLINE void for_sums(const Body& body) {
        const RowsCorrelation& rows = patch_.rows;
        unrolled<kRows>([&](auto row) HWY_ATTR __attribute__((always_inline)) {
            float* const memory =
                rows.sums + patch_.channel +
                ((patch_.r + row) * rows.horizontal.taps + patch_.s) * rows.sums_distance;
            unrolled<kTaps>([&](auto tap) HWY_ATTR __attribute__((always_inline)) {
                body(sums_[row][tap], memory + tap * rows.sums_distance);
            });
        });
    }

    HWY_INLINE void add_row(std::int64_t p) {
        const RowsCorrelation& rows = patch_.rows;
        const auto* diff =
            static_cast<const Element*>(rows.diff_dst) + p * rows.dst_row + patch_.channel;
        const DepthwiseAxis& across = rows.horizontal;
        std::int64_t q = 0;
        for (; q + kPixels<V> <= across.results; q += kPixels<V>) {
            add_pixels<kPixels<V>>(p, q, diff + q * rows.dst_distance);
        }
        for (; q < across.results; ++q) add_pixels<1>(p, q, diff + q * rows.dst_distance);
    }

    template <int kCount>
    HWY_INLINE void add_pixels(std::int64_t p, std::int64_t q, const Element* diff) {
        const DepthwiseAxis& across = patch_.rows.horizontal;
        if (fetches_) fetch_ahead(p, q, kCount, diff);
        const std::int64_t first = across.position(q, patch_.s);
        const std::int64_t last = across.position(q + kCount - 1, patch_.s) + kTaps - 1;
        if (first >= 0 && last < across.extent) {
            add_tile<kCount, false>(p, first, diff);
        } else {
            add_tile<kCount, true>(p, first, diff);
        }
    }

    // Of both operands, in the rows of src that no earlier row of diff_dst has used.
    HWY_INLINE void fetch_ahead(std::int64_t p, std::int64_t q, std::int64_t count,
                                const Element* diff) {
        const RowsCorrelation& rows = patch_.rows;
        const DepthwiseAxis& down = rows.vertical;
        prefetch(diff + rows.rows_ahead * rows.dst_row, rows.dst_distance, count);
        const auto* src = static_cast<const Element*>(rows.src) + patch_.channel +
                          rows.horizontal.position(q, 0) * rows.src_distance;
        for (std::int64_t r = std::max<std::int64_t>(down.taps - down.step, 0); r < down.taps;
             ++r) {
            prefetch(src + down.position(p + rows.rows_ahead, r) * rows.src_row, rows.src_distance,
                     count * rows.horizontal.step);
        }
    }

    template <int kCount, bool kRim>
    HWY_INLINE void add_tile(std::int64_t p, std::int64_t column, const Element* diff) {
        const DepthwiseAxis& down = patch_.rows.vertical;
        V pixels[kCount];
        unrolled<kCount>([&](auto i) HWY_ATTR __attribute__((always_inline)) {
            pixels[i] = V::load(diff + i * patch_.rows.dst_distance, patch_.part);
        });
        unrolled<kRows>([&](auto row) HWY_ATTR __attribute__((always_inline)) {
            const std::int64_t h = down.position(p, patch_.r + row);
            if (patch_.r + row >= down.taps || h < 0 || h >= down.extent) return;
            const auto* src = static_cast<const Element*>(patch_.rows.src) +
                              h * patch_.rows.src_row + patch_.channel;
            add_columns<kCount, kRim>(src, column, pixels, sums_[row]);
        });
    }

    template <int kCount, bool kRim>
    HWY_INLINE void add_columns(const Element* src, std::int64_t first, const V* pixels, V* sums) {
        const DepthwiseAxis& across = patch_.rows.horizontal;
        unrolled<(kCount - 1) * kStep + kTaps>([&](auto i) HWY_ATTR __attribute__((always_inline)) {
            const std::int64_t column = first + i * (kTaps == 1 ? across.step : 1);
            if (kRim && (column < 0 || column >= across.extent)) return;
            const V value = V::load(src + column * patch_.rows.src_distance, patch_.part);
            unrolled<kCount>([&](auto pixel) HWY_ATTR __attribute__((always_inline)) {
                constexpr int kTap = decltype(i)::value - decltype(pixel)::value * kStep;
                if constexpr (kTap >= 0 && kTap < kTaps) {
                    sums[kTap].multiply_add(value, pixels[pixel]);
                }
            });
        });
    }

    const FilterPatch<Part>& patch_;
    const bool fetches_ = patch_.s == 0 && patch_.r == 0 && patch_.rows.rows_ahead > 0;
    V sums_[kRows][kTaps];
};

template <class V, int kTaps, int kStep, class Part>
void correlate_patch(const FilterPatch<Part>& patch) {
    Correlation<V, Part, kTaps, kStep> correlation(patch);
    correlation.add_rows();
    correlation.store();
}

template <class V, int kTaps, int kStep>
void correlate_taps(const RowsCorrelation& rows, std::int64_t s) {
    using Narrow = typename V::Narrow;
    for (std::int64_t r = 0; r < rows.vertical.taps; r += kRows) {
        std::int64_t channel = 0;
        for (; channel + V::kChannels <= rows.channels; channel += V::kChannels) {
            correlate_patch<V, kTaps, kStep>(FilterPatch<All>{rows, r, s, channel, {}});
        }
        for (; channel + Narrow::kChannels <= rows.channels; channel += Narrow::kChannels) {
            correlate_patch<Narrow, kTaps, kStep>(FilterPatch<All>{rows, r, s, channel, {}});
        }
        if (channel < rows.channels) {
            correlate_patch<Narrow, kTaps, kStep>(
                FilterPatch<First>{rows, r, s, channel, {rows.channels - channel}});
        }
    }
}

template <class V>
void correlate_rows(const RowsCorrelation& rows) {
    const DepthwiseAxis& across = rows.horizontal;
    std::int64_t s = 0;
    // The lowest level does with single taps: it is compiled to be there, not to be fast.
    if constexpr (HWY_TARGET != HWY_SCALAR) {
        const bool dense = across.spread == 1 && across.step <= 2;
        for (; dense && s + kMostTaps <= across.taps; s += kMostTaps) {
            if (across.step == 1) {
                correlate_taps<V, kMostTaps, 1>(rows, s);
            } else {
                correlate_taps<V, kMostTaps, 2>(rows, s);
            }
        }
    }
    for (; s < across.taps; ++s) correlate_taps<V, 1, 1>(rows, s);
}

CorrelateRows correlate_rows_of(DType dtype) {
    return dtype == DType::f32 ? correlate_rows<ChannelVector<float>>
                               : correlate_rows<ChannelVector<std::uint16_t>>;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dlprim
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dlprim {

CorrelateRows correlate_rows_function(Isa isa, DType dtype) {
    return DLPRIM_FOR_ISA(isa, correlate_rows_of)(dtype);
}

}  // namespace dlprim
#endif
