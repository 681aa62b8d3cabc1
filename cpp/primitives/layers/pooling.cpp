#include "primitives/layers/pooling.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "jit/isa.h"
#include "primitives/layers/channel_panels.h"
#include "primitives/layers/pooling_rows.h"
#include "primitives/tensor/parallel.h"
#include "primitives/tensor/partition.h"

namespace dlprim {
namespace {

constexpr std::int64_t kMostTaps = 256;

// What a pixel gathers from along one axis.
struct Sources {
    Range range;
    std::int64_t tap;  // of the first of them
    float factor = 1;  // of the average, forward
};

// One axis: which inputs a result sees, and which results an input is seen by.
struct Axis {
    std::int64_t src, dst, window, stride, padding;
    bool padding_counts;

    Sources inputs(std::int64_t result) const {
        const std::int64_t first = result * stride - padding;
        const std::int64_t begin = std::max<std::int64_t>(first, 0);
        const Range range{begin, std::min(first + window, src)};
        const auto count = padding_counts ? window : range.size();
        return {range, begin - first, 1.0F / static_cast<float>(count)};
    }
    Sources results(std::int64_t input) const {
        const std::int64_t place = input + padding;
        const std::int64_t first = place < window ? 0 : (place - window) / stride + 1;
        return {{first, std::min(place / stride + 1, dst)}, place - first * stride};
    }
    // Of all results.
    std::vector<float> factors() const {
        std::vector<float> values(static_cast<std::size_t>(dst));
        for (std::size_t i = 0; i < values.size(); ++i) {
            values[i] = inputs(static_cast<std::int64_t>(i)).factor;
        }
        return values;
    }
    // Of all pixels: divisions that every row of them would otherwise repeat.
    std::vector<Sources> sources(bool forward) const {
        std::vector<Sources> all(static_cast<std::size_t>(forward ? dst : src));
        for (std::size_t i = 0; i < all.size(); ++i) {
            const auto pixel = static_cast<std::int64_t>(i);
            all[i] = forward ? inputs(pixel) : results(pixel);
        }
        return all;
    }
};

class PoolPass {
public:
    PoolPass(const Pooling& pooling, bool forward)
        : pooling_(pooling),
          forward_(forward),
          rows_{pooling.src.height, pooling.P(),   pooling.R,
                pooling.stride_h,   pooling.pad_h, pooling.kind != PoolingKind::average},
          columns_{pooling.src.width, pooling.Q(),   pooling.S,
                   pooling.stride_w,  pooling.pad_w, pooling.kind != PoolingKind::average},
          panels_(pooling.src, pooling.layout),
          gathered_(columns_.sources(forward)) {
        if (forward) {
            row_factors_.assign(static_cast<std::size_t>(pooling.R), 1.0F);
            column_factors_.assign(static_cast<std::size_t>(pooling.S), 1.0F);
        } else {
            row_factors_ = rows_.factors();
            column_factors_ = columns_.factors();
        }
    }

    // Forward `taps_out`, backward `taps`, of the maximum.
    void run(const void* from, void* to, const std::uint8_t* taps, std::uint8_t* taps_out) const {
        const PoolFunctions functions = pool_functions(usable_isa(), pooling_.src.dtype);
        const auto maximum = forward_ ? functions.maximum : functions.maximum_backward;
        const auto gather = pooling_.kind == PoolingKind::max ? maximum : functions.weighted_sum;
        const std::int64_t element = size_of(pooling_.src.dtype);
        for_rows([&](std::int64_t panel, std::int64_t row) {
            const auto length = static_cast<std::int64_t>(gathered_.size());
            const Sources h = forward_ ? rows_.inputs(row) : rows_.results(row);
            std::int64_t place = (panel * row_count() + row) * length * panels_.width;
            PoolWindow it = window(panel, h);
            const std::int64_t first =
                (panel * (forward_ ? rows_.src : rows_.dst) + h.range.begin) * it.row_distance;
            for (std::int64_t column = 0; column < length; ++column, place += panels_.width) {
                const Sources w = gathered_[static_cast<std::size_t>(column)];
                it.columns = std::max<std::int64_t>(w.range.size(), 0);
                // Of a pixel that no window sees there is nothing to gather.
                const std::int64_t at =
                    it.rows * it.columns == 0 ? 0 : first + w.range.begin * panels_.width;
                it.from = static_cast<const char*>(from) + at * element;
                it.to = static_cast<char*>(to) + place * element;
                it.taps = taps == nullptr ? nullptr : taps + at;
                it.taps_out = taps_out == nullptr ? nullptr : taps_out + place;
                it.tap = h.tap * pooling_.S + w.tap;
                it.scale = h.factor * w.factor;
                it.column_factors = column_factors_.data() + (forward_ ? 0 : w.range.begin);
                gather(it);
            }
        });
    }

private:
    std::int64_t row_count() const { return forward_ ? rows_.dst : rows_.src; }

    // body(panel, row) of what is written; a panel is a block of an image.
    template <class Body>
    void for_rows(const Body& body) const {
        const std::int64_t rows = row_count();
        parallel_for(pooling_.src.images * panels_.blocks * rows,
                     [&](std::int64_t task) { body(task / rows, task % rows); });
    }

    // What the windows of a row share.
    PoolWindow window(std::int64_t panel, const Sources& rows) const {
        return {.channels = panels_.channels(panel % panels_.blocks).size(),
                .rows = std::max<std::int64_t>(rows.range.size(), 0),
                .row_distance = (forward_ ? columns_.src : columns_.dst) * panels_.width,
                .column_distance = panels_.width,
                .tap_row = forward_ ? pooling_.S : -rows_.stride * pooling_.S,
                .tap_column = forward_ ? 1 : -columns_.stride,
                .row_factors = row_factors_.data() + (forward_ ? 0 : rows.range.begin)};
    }

    Pooling pooling_;
    bool forward_;
    Axis rows_;
    Axis columns_;
    ChannelPanels panels_;
    std::vector<Sources> gathered_;   // by each column
    std::vector<float> row_factors_;  // of what is gathered: ones forward
    std::vector<float> column_factors_;
};

void refuse(const std::string& sentence) { throw std::invalid_argument(sentence); }

void validate_axis(const Axis& axis, const std::string& name) {
    if (axis.window < 1 || axis.stride < 1) {
        refuse("kernel and stride in " + name + " are " + std::to_string(axis.window) + " and " +
               std::to_string(axis.stride) + ", expected at least 1");
    }
    if (axis.padding < 0 || 2 * axis.padding > axis.window) {
        refuse("padding in " + name + " is " + std::to_string(axis.padding) +
               ", expected at most half of the kernel, " + std::to_string(axis.window));
    }
    if (axis.window > axis.src + 2 * axis.padding) {
        refuse("the kernel has " + name + " " + std::to_string(axis.window) +
               ", which exceeds the padded input, " + std::to_string(axis.src + 2 * axis.padding));
    }
}

}  // namespace

void validate(const Pooling& it) {
    validate_axis({it.src.height, 0, it.R, it.stride_h, it.pad_h, true}, "height");
    validate_axis({it.src.width, 0, it.S, it.stride_w, it.pad_w, true}, "width");
    if (it.kind == PoolingKind::max && it.R * it.S > kMostTaps) {
        refuse("the kernel has " + std::to_string(it.R * it.S) +
               " elements, expected at most 256, whose numbers fit in a byte");
    }
}

void pool_forward(const Pooling& pooling, const void* src, void* dst, std::uint8_t* indices) {
    PoolPass(pooling, true).run(src, dst, nullptr, indices);
}

void pool_backward(const Pooling& pooling, const void* diff_dst, const std::uint8_t* indices,
                   void* diff_src) {
    PoolPass(pooling, false).run(diff_dst, diff_src, indices, nullptr);
}

}  // namespace dlprim
