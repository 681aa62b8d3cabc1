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

// One axis: which inputs a result sees, and which results an input is seen by.
struct Axis {
    std::int64_t src, dst, window, stride, padding;
    bool padding_counts;

    Range inputs(std::int64_t result) const {
        const std::int64_t first = result * stride - padding;
        return {std::max<std::int64_t>(first, 0), std::min(first + window, src)};
    }
    Range results(std::int64_t input) const {
        const std::int64_t place = input + padding;
        const std::int64_t first = place < window ? 0 : (place - window) / stride + 1;
        return {first, std::min(place / stride + 1, dst)};
    }
    std::int64_t first_tap(std::int64_t result) const {
        return inputs(result).begin - (result * stride - padding);
    }
    // results() of all inputs: divisions that a row of pixels would otherwise repeat.
    std::vector<Range> all_results() const {
        std::vector<Range> ranges(static_cast<std::size_t>(src));
        for (std::int64_t input = 0; input < src; ++input) {
            ranges[static_cast<std::size_t>(input)] = results(input);
        }
        return ranges;
    }
    // Of an average, one for each result.
    std::vector<float> factors() const {
        std::vector<float> values(static_cast<std::size_t>(dst));
        for (std::int64_t result = 0; result < dst; ++result) {
            const auto count = padding_counts ? window : inputs(result).size();
            values[static_cast<std::size_t>(result)] = 1.0F / static_cast<float>(count);
        }
        return values;
    }
};

class PoolPass {
public:
    explicit PoolPass(const Pooling& pooling)
        : pooling_(pooling),
          rows_{pooling.src.height, pooling.P(),   pooling.R,
                pooling.stride_h,   pooling.pad_h, pooling.kind != PoolingKind::average},
          columns_{pooling.src.width, pooling.Q(),   pooling.S,
                   pooling.stride_w,  pooling.pad_w, pooling.kind != PoolingKind::average},
          panels_src_(pooling.src, pooling.layout),
          functions_(pool_functions(usable_isa(), pooling.src.dtype)),
          row_factors_(rows_.factors()),
          column_factors_(columns_.factors()),
          ones_(static_cast<std::size_t>(std::max(pooling.R, pooling.S)), 1.0F) {}

    void forward(const void* src, void* dst, std::uint8_t* indices) const {
        const bool is_max = pooling_.kind == PoolingKind::max;
        const auto gather = is_max ? functions_.maximum : functions_.weighted_sum;
        const std::int64_t width = panels_src_.width;
        for_rows(rows_.dst, [&](std::int64_t image, std::int64_t block, std::int64_t p) {
            const Range h = rows_.inputs(p);
            const std::int64_t from = place({image, block}, h.begin, 0, true);
            std::int64_t to = place({image, block}, p, 0, false);
            PoolWindow it = window(block, h, {0, 0}, columns_.src);
            it.tap_row = pooling_.S;
            it.tap_column = 1;
            it.row_factors = it.column_factors = ones_.data();
            const float row_factor = row_factors_[static_cast<std::size_t>(p)];
            for (std::int64_t q = 0; q < columns_.dst; ++q, to += width) {
                const Range w = columns_.inputs(q);
                it.columns = std::max<std::int64_t>(w.size(), 0);
                it.from = static_cast<const char*>(src) + (from + w.begin * width) * element_;
                it.to = static_cast<char*>(dst) + to * element_;
                it.taps_out = indices == nullptr ? nullptr : indices + to;
                it.tap = rows_.first_tap(p) * pooling_.S + columns_.first_tap(q);
                it.scale = row_factor * column_factors_[static_cast<std::size_t>(q)];
                gather(it);
            }
        });
    }

    void backward(const void* diff_dst, const std::uint8_t* indices, void* diff_src) const {
        const bool is_max = pooling_.kind == PoolingKind::max;
        const auto gather = is_max ? functions_.maximum_backward : functions_.weighted_sum;
        const std::vector<Range> columns = columns_.all_results();
        const std::int64_t width = panels_src_.width;
        for_rows(rows_.src, [&](std::int64_t image, std::int64_t block, std::int64_t h) {
            const Range p = rows_.results(h);
            const std::int64_t from = place({image, block}, p.begin, 0, false);
            const std::int64_t tap = (h + rows_.padding - p.begin * rows_.stride) * pooling_.S;
            auto* to = static_cast<char*>(diff_src) + place({image, block}, h, 0, true) * element_;
            PoolWindow it = window(block, p, {0, 0}, columns_.dst);
            it.tap_row = -rows_.stride * pooling_.S;
            it.tap_column = -columns_.stride;
            it.row_factors = row_factors_.data() + p.begin;
            for (std::int64_t w = 0; w < columns_.src; ++w, to += width * element_) {
                const Range q = columns[static_cast<std::size_t>(w)];
                it.columns = std::max<std::int64_t>(q.size(), 0);
                // Of a pixel that no window sees there is nothing to gather.
                const std::int64_t at = it.rows * it.columns == 0 ? 0 : from + q.begin * width;
                it.from = static_cast<const char*>(diff_dst) + at * element_;
                it.to = to;
                it.taps = indices == nullptr ? nullptr : indices + at;
                it.tap = tap + w + columns_.padding - q.begin * columns_.stride;
                it.column_factors = column_factors_.data() + q.begin;
                gather(it);
            }
        });
    }

private:
    struct Panel {
        std::int64_t image, block;
    };

    std::int64_t blocks() const { return panels_src_.blocks; }
    std::int64_t width() const { return panels_src_.width; }

    // body(image, block, row) of an image's rows.
    template <class Body>
    void for_rows(std::int64_t rows, const Body& body) const {
        parallel_for(pooling_.src.images * blocks() * rows, [&](std::int64_t task) {
            body(task / rows / blocks(), task / rows % blocks(), task % rows);
        });
    }

    // Elements before a pixel of src, or else of dst.
    std::int64_t place(Panel panel, std::int64_t row, std::int64_t column, bool of_src) const {
        const std::int64_t height = of_src ? rows_.src : rows_.dst;
        const std::int64_t length = of_src ? columns_.src : columns_.dst;
        const std::int64_t first = panel.image * blocks() + panel.block;
        return ((first * height + row) * length + column) * width();
    }

    PoolWindow window(std::int64_t block, Range rows, Range columns, std::int64_t length) const {
        return {.channels = panels_src_.channels(block).size(),
                .rows = std::max<std::int64_t>(rows.size(), 0),
                .columns = std::max<std::int64_t>(columns.size(), 0),
                .row_distance = length * width(),
                .column_distance = width()};
    }

    Pooling pooling_;
    Axis rows_;
    Axis columns_;
    ChannelPanels panels_src_;
    PoolFunctions functions_;
    std::vector<float> row_factors_;
    std::vector<float> column_factors_;
    std::vector<float> ones_;
    std::int64_t element_ = size_of(pooling_.src.dtype);
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
    PoolPass(pooling).forward(src, dst, indices);
}

void pool_backward(const Pooling& pooling, const void* diff_dst, const std::uint8_t* indices,
                   void* diff_src) {
    PoolPass(pooling).backward(diff_dst, indices, diff_src);
}

}  // namespace dlprim
