#include "primitives/layers/resampling.h"

#include <cstddef>
#include <stdexcept>

#include "jit/isa.h"
#include "primitives/layers/channel_panels.h"
#include "primitives/layers/pooling_rows.h"
#include "primitives/tensor/parallel.h"

namespace dlprim {
namespace {

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

// What one result reads along an axis.
struct Window {
    Window(const AxisWindows& axis, std::int64_t result)
        : begin(axis.begins[at(result)]),
          size(axis.places[at(result + 1)] - axis.places[at(result)]),
          weights(axis.weights.data() + axis.places[at(result)]) {}

    std::int64_t begin;
    std::int64_t size;
    const float* weights;
};

void validate_axis(const AxisWindows& axis, std::int64_t extent) {
    bool fits = axis.places.size() == axis.begins.size() + 1 && axis.places.front() == 0 &&
                axis.places.back() == static_cast<std::int64_t>(axis.weights.size());
    for (std::int64_t i = 0; fits && i < axis.results(); ++i) {
        const Window it(axis, i);
        fits = it.size >= 0 && it.begin >= 0 && it.begin + it.size <= extent;
    }
    if (!fits) throw std::invalid_argument("windows of an axis reach beyond what they read");
}

}  // namespace

void validate(const Resampling& it) {
    validate_axis(it.rows, it.src.height);
    validate_axis(it.columns, it.src.width);
}

void resample(const Resampling& it, const void* src, void* dst) {
    const PoolFunction gather = pool_functions(usable_isa(), it.src.dtype).weighted_sum;
    const ChannelPanels panels(it.src, it.layout);
    const std::int64_t element = size_of(it.src.dtype);
    const std::int64_t rows = it.rows.results(), columns = it.columns.results();
    parallel_for(it.src.images * panels.blocks * rows, [&](std::int64_t task) {
        const std::int64_t panel = task / rows;
        const Window h(it.rows, task % rows);
        PoolWindow window{.channels = panels.channels(panel % panels.blocks).size(),
                          .row_distance = it.src.width * panels.width,
                          .column_distance = panels.width,
                          .row_factors = h.weights};
        const std::int64_t first = (panel * it.src.height + h.begin) * window.row_distance;
        for (std::int64_t column = 0; column < columns; ++column) {
            const Window w(it.columns, column);
            const bool reads = h.size * w.size > 0;
            window.rows = reads ? h.size : 0;
            window.columns = reads ? w.size : 0;
            const std::int64_t from = reads ? first + w.begin * panels.width : 0;
            window.from = static_cast<const char*>(src) + from * element;
            window.to =
                static_cast<char*>(dst) + (task * columns + column) * panels.width * element;
            window.column_factors = w.weights;
            gather(window);
        }
    });
}

}  // namespace dlprim
