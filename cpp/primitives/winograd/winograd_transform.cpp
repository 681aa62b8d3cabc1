#include "primitives/winograd/winograd_transform.h"

#include <array>
#include <bit>
#include <cstddef>

namespace dlprim {
namespace {

class TileProgram {
public:
    explicit TileProgram(const TileTransform& it)
        : it_(it), h_(axis_of(it.kind, it.tile_h)), w_(axis_of(it.kind, it.tile_w)) {}

    RowSpec spec() {
        const bool reduces = it_.kind == TileKind::result || it_.kind == TileKind::filter_gradient;
        if (reduces) {
            reduce();
        } else {
            expand();
        }
        return row_.spec();
    }

private:
    using PixelRows = std::array<std::uint8_t, kMostOnAxis>;  // their operands

    // One operand for all, or one for each that exists.
    template <class Make>
    PixelRows rows_of(const Make& make) const {
        PixelRows made{};
        if (it_.row != 0) made.fill(make());
        for (auto i = it_.rows.begin; it_.row == 0 && i < it_.rows.end; ++i) {
            made.at(static_cast<std::size_t>(i)) = make();
        }
        return made;
    }

    void expand() {
        const bool pairs =
            it_.kind == TileKind::even_pair_filter || it_.kind == TileKind::odd_pair_filter;
        const DType dtype = pairs ? DType::f32 : it_.dtype;
        const PixelRows pixels = rows_of([&] { return row_.parts(dtype); });
        const std::uint8_t slots = row_.result(RowShape::tensor, DType::f32);
        const bool is_tile = it_.kind == TileKind::input || it_.kind == TileKind::gradient;
        if (is_tile) fetch(pixels, dtype, w_.operands);
        std::array<AxisValue, kMostOnAxis * kMostOnAxis> known;
        transform(
            [&](int i, int j) -> AxisValue {
                if (!exists(i, j)) return {};
                // Widening costs more than keeping what was widened.
                AxisValue& value = known.at(static_cast<std::size_t>(i * kMostOnAxis + j));
                if (!value || size_of(dtype) == 4)
                    value = half(row_.load(pixels.at(at(i)), place(i, j, dtype)));
                return value;
            },
            [&](int i, int j, const AxisValue& value) {
                row_.write(RowOp::store, slots, slot(i * slots_of(it_.tile_w) + j),
                           value.value_or(0.0F));
            });
    }

    void reduce() {
        const std::uint8_t slots = row_.parts(DType::f32);
        PixelRows residual = {};
        if (it_.residual) residual = rows_of([&] { return row_.parts(it_.dtype); });
        AxisValue bias;
        if (it_.kind == TileKind::result) bias = row_.tensor(DType::f32);
        const PixelRows pixels = rows_of([&] { return row_.result(RowShape::tensor, it_.dtype); });
        if (bias) fetch(pixels, it_.dtype, it_.tile_w);
        transform(
            [&](int i, int j) -> AxisValue { return row_.load(slots, slot(i * w_.operands + j)); },
            [&](int i, int j, AxisValue value) {
                if (!exists(i, j)) return;
                if (bias) value = *value + *bias;
                if (it_.residual) {
                    value = *value + row_.load(residual.at(at(i)), place(i, j, it_.dtype));
                }
                if (it_.relu) value = activated(Activation::relu, *value);
                row_.write(RowOp::store, pixels.at(at(i)), place(i, j, it_.dtype), *value);
            });
    }

    // Up to two rows of what is written at a time: first down every column, then along the rows.
    template <class Source, class Sink>
    void transform(const Source& source, const Sink& sink) {
        for (std::size_t pass = 0; pass < h_.passes.size(); ++pass) {
            AxisValues first, second, column;
            for (int j = 0; j < w_.operands; ++j) {
                for (int i = 0; i < h_.operands; ++i) column.at(at(i)) = source(i, j);
                const Given given = h_.apply(static_cast<int>(pass), column);
                first.at(at(j)) = given.first;
                second.at(at(j)) = given.second;
            }
            along_row(h_.passes[pass].first, first, sink);
            if (h_.passes[pass].second != kNone) along_row(h_.passes[pass].second, second, sink);
        }
    }

    template <class Sink>
    void along_row(int i, const AxisValues& row, const Sink& sink) {
        for (std::size_t pass = 0; pass < w_.passes.size(); ++pass) {
            const Given given = w_.apply(static_cast<int>(pass), row);
            sink(i, w_.passes[pass].first, given.first);
            if (w_.passes[pass].second != kNone) sink(i, w_.passes[pass].second, given.second);
        }
    }

    // Lines of the pixels that the next tile will use: hardware foresees no jumps from pixel to
    // pixel.
    void fetch(const PixelRows& pixels, DType dtype, int first) {
        for (auto i = it_.rows.begin; i < it_.rows.end; ++i) {
            for (int j = first; j < first + it_.tile_w; ++j) {
                row_.fetch(pixels.at(static_cast<std::size_t>(i)), place(i, j, dtype));
            }
        }
    }

    // Of bfloat16 pairs the first or the second.
    RowValue half(RowValue loaded) const {
        const auto upwards = std::bit_cast<float>(1U << 16);
        switch (it_.kind) {
            case TileKind::even_pair_filter: return low_product(loaded, upwards);
            case TileKind::odd_pair_filter:
                return low_product(high_product(loaded, upwards), upwards);
            default: return loaded;
        }
    }

    bool exists(int i, int j) const {
        return i >= it_.rows.begin && i < it_.rows.end && j >= it_.columns.begin &&
               j < it_.columns.end;
    }
    // In bytes.
    std::int64_t place(std::int64_t i, int j, DType dtype) const {
        return (i * it_.row + j * it_.pixel) * size_of(dtype);
    }
    std::int64_t slot(int index) const { return index * it_.slot_stride * size_of(DType::f32); }
    static std::size_t at(int index) { return static_cast<std::size_t>(index); }

    const TileTransform& it_;
    const TileAxis& h_;
    const TileAxis& w_;
    RowBuilder row_;
};

struct TransformHash {
    std::size_t operator()(const TileTransform& it) const noexcept {
        std::size_t seed = 0;
        const auto mix = [&seed](auto... values) {
            ((seed = (seed ^ static_cast<std::size_t>(values)) * 0x9e3779b97f4a7c15ULL), ...);
        };
        mix(it.kind, it.dtype, it.tile_h, it.tile_w, it.rows.begin, it.rows.end);
        mix(it.columns.begin, it.columns.end, it.row, it.pixel, it.slot_stride);
        mix(it.residual, it.relu);
        return seed;
    }
};

}  // namespace

RowSpec tile_program(const TileTransform& it) { return TileProgram(it).spec(); }

std::shared_ptr<const RowKernel> tile_kernel(const TileTransform& it) {
    return known_program<TileTransform, TransformHash>(it, [&] { return tile_program(it); });
}

}  // namespace dlprim
