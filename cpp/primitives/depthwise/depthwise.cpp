#include "primitives/depthwise/depthwise.h"

#include <algorithm>
#include <numeric>
#include <span>

#include "jit/isa.h"
#include "primitives/depthwise/depthwise_geometry.h"
#include "primitives/depthwise/depthwise_rows.h"
#include "primitives/tensor/parallel.h"
#include "primitives/tensor/partition.h"

namespace dlprim {
namespace {

// What a task writes: long enough to hide the cost of handing it out, short enough for the rows
// that it reads to stay in the L2 cache.
constexpr std::int64_t kTaskBytes = 128 * 1024;

// A row of a block of the channels of an image.
struct RowTask {
    std::int64_t n;
    std::int64_t b;
    std::int64_t row;
};

// body(RowTask) for every row of every block of every image of a tensor. Neighbouring rows go to
// one thread, since they read the same rows.
template <class Body>
void for_rows(const ConvProblem& problem, Plane dst, std::int64_t height, const Body& body) {
    const std::int64_t row_bytes = dst.row * dst.element;
    const Blocks bands{height, std::max<std::int64_t>(kTaskBytes / row_bytes, 1)};
    const Blocks groups = block_groups(problem);
    // Blocked, a block of an image is contiguous; channels-last, a row of all blocks is.
    const bool blocked = problem.layout == Format::blocked;
    const std::int64_t inner = blocked ? bands.count() : groups.count();
    const std::int64_t outer = blocked ? groups.count() : bands.count();
    parallel_for(problem.shape.N * inner * outer, [&](std::int64_t task) {
        const std::int64_t n = task / (inner * outer);
        const std::int64_t i = task / inner % outer;
        const std::int64_t j = task % inner;
        const Range band = bands.at(blocked ? j : i);
        const Range group = groups.at(blocked ? i : j);
        for (std::int64_t row = band.begin; row < band.end; ++row) {
            for (std::int64_t b = group.begin; b < group.end; ++b) {
                body(RowTask{n, b, row});
            }
        }
    });
}

// The results, along one axis, that are `step` apart and so see the same taps: position w of src is
// result * step + tap * spread - before, for taps that are `every` apart.
struct Phase {
    std::int64_t first = 0;  // position
    std::int64_t taps = 0;
    std::int64_t last_tap = 0;
    std::int64_t every = 1;
    std::int64_t result = 0;  // under last_tap at `first`; may be negative
    std::int64_t spread = 1;  // results from tap to tap, backwards
};

Phase phase(const DepthwiseAxis& axis, std::int64_t first) {
    const std::int64_t common = std::gcd(axis.step, axis.spread);
    Phase found{.first = first, .every = axis.step / common, .spread = axis.spread / common};
    for (std::int64_t tap = 0; tap < axis.taps; ++tap) {
        const std::int64_t distance = first + axis.before - tap * axis.spread;
        if (distance % axis.step != 0) continue;
        ++found.taps;
        found.last_tap = tap;
        found.result = distance / axis.step;
    }
    return found;
}

// How many of first, first + step, ... (`count` of them) are below `bound`.
std::int64_t count_below(std::int64_t bound, std::int64_t first, std::int64_t step,
                         std::int64_t count) {
    return std::clamp<std::int64_t>((bound - first + step - 1) / step, 0, count);
}

// The indices of those that lie in [0, extent).
Range indices_inside(std::int64_t extent, std::int64_t first, std::int64_t step,
                     std::int64_t count) {
    return {count_below(0, first, step, count), count_below(extent, first, step, count)};
}

std::int64_t column_phases(const ConvShape& shape) { return std::min(shape.stride_w, shape.W); }

}  // namespace

void depthwise_forward(const ConvProblem& problem, const ConvTensors& tensors, bool relu) {
    const ConvShape& shape = problem.shape;
    const ChannelBlocks blocks = src_blocks(shape);
    const Plane src = src_plane(problem);
    const Plane dst = dst_plane(problem);
    const DepthwiseAxis down = vertical(shape);
    const ConvolveRow convolve = convolve_row_function(usable_isa(), problem.dtype);
    const RowConvolution any{.src_row = shape.dilation_h * src.row,
                             .weights_row = shape.S * blocks.block,
                             .fetches = fetches_rows(problem),
                             .src_ahead = rows_ahead(shape.Q()) * shape.stride_h * src.row,
                             .dst_ahead = rows_ahead(shape.Q()) * dst.row,
                             .taps = shape.S,
                             .tap_distance = blocks.block,
                             .spread = shape.dilation_w,
                             .step = shape.stride_w,
                             .column = -shape.pad_left,
                             .width = shape.W,
                             .src_distance = src.pixel,
                             .dst_distance = dst.pixel,
                             .results = shape.Q(),
                             .relu = relu};
    for_rows(problem, dst, shape.P(), [&](RowTask task) {
        RowConvolution row = any;
        const Range filter_rows =
            indices_inside(shape.H, down.position(task.row, 0), shape.dilation_h, shape.R);
        const std::int64_t r = filter_rows.begin;
        const std::int64_t tap = (task.b * shape.R + r) * shape.S * blocks.block;
        row.src = at(tensors.src, src.offset(task.n, task.b, down.position(task.row, r), 0));
        row.weights = at(tensors.weights, tap * src.element);
        row.row_count = filter_rows.size();
        row.fresh_rows = std::min(row.row_count, shape.stride_h);
        row.channels = channels_of(blocks, task.b);
        const std::int64_t offset = dst.offset(task.n, task.b, task.row, 0);
        if (tensors.bias != nullptr) row.bias = tensors.bias + task.b * blocks.block;
        if (tensors.residual != nullptr) row.residual = at(tensors.residual, offset);
        row.dst = at(tensors.result, offset);
        convolve(row);
    });
}

std::int64_t depthwise_data_scratch_bytes(const ConvProblem& problem) {
    return column_phases(problem.shape) * static_cast<std::int64_t>(sizeof(Phase));
}

void depthwise_backward_data(const ConvProblem& problem, const ConvTensors& tensors,
                             char* scratch) {
    const ConvShape& shape = problem.shape;
    const ChannelBlocks blocks = src_blocks(shape);
    const Plane src = src_plane(problem);
    const Plane dst = dst_plane(problem);
    const ConvolveRow convolve = convolve_row_function(usable_isa(), problem.dtype);
    const std::span phases(reinterpret_cast<Phase*>(scratch),
                           static_cast<std::size_t>(column_phases(shape)));
    for (std::size_t w = 0; w < phases.size(); ++w) {
        phases[w] = phase(horizontal(shape), static_cast<std::int64_t>(w));
    }
    const bool fetches = fetches_rows(problem);
    for_rows(problem, src, shape.H, [&](RowTask task) {
        const Phase rows = phase(vertical(shape), task.row);
        const Range inside = indices_inside(shape.P(), rows.result, rows.spread, rows.taps);
        const std::int64_t count = inside.size();
        const std::int64_t p = rows.result + inside.begin * rows.spread;
        const std::int64_t r = rows.last_tap - inside.begin * rows.every;
        const std::int64_t tap = (task.b * shape.R + r) * shape.S * blocks.block;
        for (const Phase& columns : phases) {
            convolve(
                {.src = at(tensors.diff_dst, dst.offset(task.n, task.b, p, 0)),
                 .weights = at(tensors.weights, tap * src.element),
                 .src_row = rows.spread * dst.row,
                 .weights_row = -rows.every * shape.S * blocks.block,
                 .row_count = count,
                 .fetches = fetches,
                 .fresh_rows = columns.first == 0 ? std::min<std::int64_t>(count, 1) : 0,
                 .src_ahead = rows_ahead(shape.Q()) * dst.row,
                 .dst_ahead = rows_ahead(shape.W) * src.row,
                 .taps = columns.taps,
                 .first_tap = columns.last_tap * blocks.block,
                 .tap_distance = -columns.every * blocks.block,
                 .spread = columns.spread,
                 .column = columns.result,
                 .width = shape.Q(),
                 .src_distance = dst.pixel,
                 .dst_distance = shape.stride_w * src.pixel,
                 .results = (shape.W - columns.first - 1) / shape.stride_w + 1,
                 .channels = channels_of(blocks, task.b),
                 .dst = at(tensors.result, src.offset(task.n, task.b, task.row, columns.first))});
        }
    });
}

}  // namespace dlprim
