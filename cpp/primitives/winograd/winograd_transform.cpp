// Compiled once per target, as per_isa.h describes.
#include "primitives/winograd/winograd_transform.h"

#include <cstdint>
#include <iterator>

#include "primitives/tensor/per_isa.h"

#define HWY_TARGET_INCLUDE "primitives/winograd/winograd_transform.cpp"
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include <hwy/cache_control.h>
#include "primitives/winograd/winograd_axis-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace dlprim {
namespace HWY_NAMESPACE {
namespace {

constexpr int kMost = 6;  // pixels or slots along one axis
constexpr std::uintptr_t kLineBytes = 64;

// Of bfloat16 pairs the first or the second.
struct EvenOfPair {
    std::uint32_t pair;
};
struct OddOfPair {
    std::uint32_t pair;
};

template <class Part>
HWY_INLINE FloatVector load_values(const EvenOfPair* src, Part part) {
    return from_lower_halves(load_part(Words(), &src->pair, part));
}
template <class Part>
HWY_INLINE FloatVector load_values(const OddOfPair* src, Part part) {
    return from_upper_halves(load_part(Words(), &src->pair, part));
}

// Lines of the pixels [begin, end) of `rows` rows, which the neighbour of a tile will use: hardware
// foresees no jumps from pixel to pixel. `first` points at a pixel's elements for one vector; of a
// line only its first vector fetches. What lies beyond a tensor is not touched.
template <class Element>
HWY_INLINE void fetch_pixels(const TileTransform& tile, const Element* first, int rows, int begin,
                             int end) {
    if (reinterpret_cast<std::uintptr_t>(first) % kLineBytes >= kFloatLanes * sizeof(Element)) {
        return;
    }
    for (int i = 0; i < rows; ++i) {
        for (int j = begin; j < end; ++j) hwy::Prefetch(first + i * tile.row + j * tile.pixel);
    }
}

// ---------------------------------------------------------------- what is read

// Pixels at equal distances, all of them there.
template <class Memory>
struct Inside {
    using Element = Memory;
    const Element* first;
    std::int64_t row;
    std::int64_t pixel;

    template <class H, class W>
    static HWY_INLINE Inside of(const TileTransform& tile) {
        return {static_cast<const Element*>(tile.src), tile.row, tile.pixel};
    }
    template <class Part>
    HWY_INLINE FloatVector at(int i, int j, std::int64_t channel, Part part) const {
        return load_values(first + i * row + j * pixel + channel, part);
    }
};

// Pixels one by one, those outside replaced by zeros.
template <class Memory>
struct AtTheRim {
    using Element = Memory;
    const Element* pixels[kMost * kMost];

    template <class H, class W>
    static HWY_INLINE AtTheRim of(const TileTransform& tile) {
        alignas(64) static constexpr Element zeros[kWinogradChannels] = {};
        AtTheRim made;
        const auto* const first = static_cast<const Element*>(tile.src);
        for (int i = 0; i < H::kIn; ++i) {
            const bool row_exists = i >= tile.rows.begin && i < tile.rows.end;
            for (int j = 0; j < W::kIn; ++j) {
                const bool exists = row_exists && j >= tile.columns.begin && j < tile.columns.end;
                made.pixels[i * kMost + j] = exists ? first + i * tile.row + j * tile.pixel : zeros;
            }
        }
        return made;
    }
    template <class Part>
    HWY_INLINE FloatVector at(int i, int j, std::int64_t channel, Part part) const {
        return load_values(pixels[i * kMost + j] + channel, part);
    }
};

// By reference, so that no multiples of the stride are kept in registers.
template <class W>
struct SlotsRead {
    const TileTransform& tile;

    template <class Part>
    HWY_INLINE FloatVector at(int i, int j, std::int64_t channel, Part) const {
        const auto* const first = static_cast<const float*>(tile.src);
        return hn::LoadU(Floats(), first + (i * W::kIn + j) * tile.slot_stride + channel);
    }
};

// ---------------------------------------------------------------- what is written

// Where the slots of one vector of channels go.
template <class W>
struct SlotsWritten {
    float* first;
    std::int64_t stride;

    HWY_INLINE void put(int i, int j, FloatVector values) const {
        hn::StoreU(values, Floats(), first + (i * W::kSlots + j) * stride);
    }
};

// Puts the results of one vector of channels where they belong.
template <class Element, class Part>
struct Results {
    const TileTransform& tile;
    std::int64_t channel;
    Part part;
    FloatVector bias;

    HWY_INLINE Results(const TileTransform& it, std::int64_t begin, Part which)
        : tile(it),
          channel(begin),
          part(which),
          bias(it.bias == nullptr ? hn::Zero(Floats())
                                  : load_part(Floats(), it.bias + begin, which)) {}

    HWY_INLINE void put(int i, int j, FloatVector values) const {
        if (i >= tile.rows.end || j >= tile.columns.end) return;
        const std::int64_t at = i * tile.row + j * tile.pixel + channel;
        values = plus(values, bias);
        if (tile.residual != nullptr) {
            values =
                plus(values, load_values(static_cast<const Element*>(tile.residual) + at, part));
        }
        if (tile.relu) values = relu_of(values);
        store_values(values, static_cast<Element*>(tile.dst) + at, part);
    }
};

// ---------------------------------------------------------------- two dimensions

template <class A>
inline constexpr int kPasses = static_cast<int>(std::size(A::kGives));

template <class W, class Sink>
HWY_INLINE void along_row(int i, const FloatVector* row, const Sink& sink) {
    unrolled<kPasses<W>>([&](auto pass) HWY_ATTR __attribute__((always_inline)) {
        constexpr Given given = W::kGives[decltype(pass)::value];
        FloatVector x;
        FloatVector y;
        W::template apply<decltype(pass)::value>(row, x, y);
        sink.put(i, given.first, x);
        if constexpr (given.second != kNone) sink.put(i, given.second, y);
    });
}

// Up to two rows of what is written at a time: first down every column, then along the rows.
template <class H, class W, class Source, class Part, class Sink>
HWY_INLINE void transform(const Source& source, std::int64_t channel, Part part, const Sink& sink) {
    unrolled<kPasses<H>>([&](auto pass) HWY_ATTR __attribute__((always_inline)) {
        constexpr Given given = H::kGives[decltype(pass)::value];
        FloatVector first[kMost];
        FloatVector second[kMost];
        unrolled<W::kIn>([&](auto j) HWY_ATTR __attribute__((always_inline)) {
            FloatVector column[kMost];
            unrolled<H::kIn>([&](auto i) HWY_ATTR __attribute__((always_inline)) {
                column[i] = source.at(i, j, channel, part);
            });
            H::template apply<decltype(pass)::value>(column, first[j], second[j]);
        });
        along_row<W>(given.first, first, sink);
        if constexpr (given.second != kNone) along_row<W>(given.second, second, sink);
    });
}

template <class H, class W, class Pixels>
void expand(const TileTransform& tile) {
    const auto pixels = Pixels::template of<H, W>(tile);
    [[maybe_unused]] const auto* const first =
        static_cast<const typename Pixels::Element*>(tile.src);
    auto* const slots = static_cast<float*>(tile.dst);
    std::int64_t channel = 0;
    for (; channel + kFloatLanes <= tile.channels; channel += kFloatLanes) {
        if constexpr (W::kStep > 0) {
            fetch_pixels(tile, first + channel, H::kIn, W::kIn, W::kIn + W::kStep);
        }
        transform<H, W>(pixels, channel, All(), SlotsWritten<W>{slots + channel, tile.slot_stride});
    }
    if (channel < tile.channels) {
        transform<H, W>(pixels, channel, First{tile.channels - channel},
                        SlotsWritten<W>{slots + channel, tile.slot_stride});
    }
}

template <class H, class W, class Element>
void reduce(const TileTransform& tile) {
    const SlotsRead<W> slots{tile};
    [[maybe_unused]] const auto* const first = static_cast<const Element*>(tile.dst);
    std::int64_t channel = 0;
    for (; channel + kFloatLanes <= tile.channels; channel += kFloatLanes) {
        if constexpr (W::kStep > 0) {
            fetch_pixels(tile, first + channel, H::kStep, W::kStep, 2 * W::kStep);
        }
        transform<H, W>(slots, channel, All(), Results<Element, All>(tile, channel, All()));
    }
    if (channel < tile.channels) {
        const First part{tile.channels - channel};
        transform<H, W>(slots, channel, part, Results<Element, First>(tile, channel, part));
    }
}

// ---------------------------------------------------------------- which one

// make(H, W): the transforms along the two axes of a tile.
template <class Four, class Three, class Two, class Make>
TileFunction of_sides(int tile_h, int tile_w, const Make& make) {
    if (tile_h == 2) return make(Two(), Two());
    if (tile_h == 4) return tile_w == 4 ? make(Four(), Four()) : make(Four(), Three());
    return tile_w == 4 ? make(Three(), Four()) : make(Three(), Three());
}

template <class Element>
TileFunction of_pixels(TileKind kind, int tile_h, int tile_w, bool inside) {
    const auto rim = [](auto h, auto w) -> TileFunction {
        return expand<decltype(h), decltype(w), AtTheRim<Element>>;
    };
    if (kind == TileKind::gradient) {
        return of_sides<Gradient4, Gradient3, Gradient2>(tile_h, tile_w, rim);
    }
    if (kind == TileKind::input) {
        if (inside && tile_h == 4 && tile_w == 4) return expand<Input4, Input4, Inside<Element>>;
        return of_sides<Input4, Input3, Input2>(tile_h, tile_w, rim);
    }
    return of_sides<Result4, Result3, Result2>(tile_h, tile_w, [](auto h, auto w) -> TileFunction {
        return reduce<decltype(h), decltype(w), Element>;
    });
}

template <class Element>
TileFunction of_filter(int tile) {
    return tile == 2 ? expand<Filter2, Filter2, Inside<Element>>
                     : expand<Filter4, Filter4, Inside<Element>>;
}

TileFunction function_of(TileKind kind, DType dtype, int tile_h, int tile_w, bool inside) {
    switch (kind) {
        case TileKind::filter: return of_filter<float>(tile_h);
        case TileKind::even_pair_filter: return of_filter<EvenOfPair>(tile_h);
        case TileKind::odd_pair_filter: return of_filter<OddOfPair>(tile_h);
        case TileKind::filter_gradient:
            return tile_h == 2 ? reduce<FilterGradient2, FilterGradient2, float>
                               : reduce<FilterGradient4, FilterGradient4, float>;
        default:
            return dtype == DType::f32 ? of_pixels<float>(kind, tile_h, tile_w, inside)
                                       : of_pixels<std::uint16_t>(kind, tile_h, tile_w, inside);
    }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dlprim
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dlprim {

TileFunction tile_function(Isa isa, TileKind kind, DType dtype, int tile_h, int tile_w,
                           bool inside) {
    return DLPRIM_FOR_ISA(isa, function_of)(kind, dtype, tile_h, tile_w, inside);
}

}  // namespace dlprim
#endif
