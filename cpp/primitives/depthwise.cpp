#include "primitives/depthwise.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "brgemm/isa.h"
#include "primitives/depthwise_geometry.h"
#include "primitives/depthwise_rows.h"
#include "primitives/parallel.h"
#include "primitives/partition.h"

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

// body(RowTask, FilterRow*) for every row of every block of every image of a tensor; the second is
// room for a filter's rows. Neighbouring rows go to one thread, since they read the same rows.
template <class Body>
void for_rows(const Depthwise& problem, Plane dst, std::int64_t height, const Body& body) {
    const std::int64_t row_bytes = dst.row * dst.element;
    const Blocks bands{height, std::max<std::int64_t>(kTaskBytes / row_bytes, 1)};
    const Blocks groups = block_groups(problem);
    // Blocked, a block of an image is contiguous; channels-last, a row of all blocks is.
    const bool blocked = problem.layout == Layout::blocked;
    const std::int64_t inner = blocked ? bands.count() : groups.count();
    const std::int64_t outer = blocked ? groups.count() : bands.count();
    parallel_for(problem.shape.N * inner * outer, [&](std::int64_t task) {
        std::vector<FilterRow> filter(static_cast<std::size_t>(problem.shape.R));
        const std::int64_t n = task / (inner * outer);
        const std::int64_t i = task / inner % outer;
        const std::int64_t j = task % inner;
        const Range band = bands.at(blocked ? j : i);
        const Range group = groups.at(blocked ? i : j);
        for (std::int64_t row = band.begin; row < band.end; ++row) {
            for (std::int64_t b = group.begin; b < group.end; ++b) {
                body(RowTask{n, b, row}, filter.data());
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

}  // namespace

void depthwise_forward(const Depthwise& problem, const DepthwiseForward& tensors) {
    const ConvShape& shape = problem.shape;
    const ChannelBlocks blocks = src_blocks(shape);
    const Plane src = src_plane(problem);
    const Plane dst = dst_plane(problem);
    const DepthwiseAxis down = vertical(shape);
    const ConvolveRow convolve = convolve_row_function(usable_isa(), problem.dtype);
    const RowConvolution any{.src_ahead = rows_ahead(shape.Q()) * shape.stride_h * src.row,
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
                             .relu = tensors.relu};
    for_rows(problem, dst, shape.P(), [&](RowTask task, FilterRow* filter) {
        RowConvolution row = any;
        row.rows = filter;
        for (std::int64_t r = 0; r < shape.R; ++r) {
            const std::int64_t h = down.position(task.row, r);
            if (h < 0 || h >= shape.H) continue;
            const std::int64_t tap = (task.b * shape.R + r) * shape.S * blocks.block;
            filter[row.row_count++] = {at(tensors.src, src.offset(task.n, task.b, h, 0)),
                                       at(tensors.weights, tap * src.element)};
        }
        row.fresh_rows = std::min(row.row_count, shape.stride_h);
        row.channels = channels_of(blocks, task.b);
        const std::int64_t offset = dst.offset(task.n, task.b, task.row, 0);
        if (tensors.bias != nullptr) row.bias = tensors.bias + task.b * blocks.block;
        if (tensors.residual != nullptr) row.residual = at(tensors.residual, offset);
        row.dst = at(tensors.dst, offset);
        convolve(row);
    });
}

void depthwise_backward_data(const Depthwise& problem, const void* diff_dst, const void* weights,
                             void* diff_src) {
    const ConvShape& shape = problem.shape;
    const ChannelBlocks blocks = src_blocks(shape);
    const Plane src = src_plane(problem);
    const Plane dst = dst_plane(problem);
    const ConvolveRow convolve = convolve_row_function(usable_isa(), problem.dtype);
    std::vector<Phase> phases;
    for (std::int64_t w = 0; w < std::min(shape.stride_w, shape.W); ++w) {
        phases.push_back(phase(horizontal(shape), w));
    }
    for_rows(problem, src, shape.H, [&](RowTask task, FilterRow* filter) {
        std::int64_t count = 0;
        for (std::int64_t r = shape.R - 1; r >= 0; --r) {
            const std::int64_t distance = task.row + shape.pad_top - r * shape.dilation_h;
            if (distance < 0 || distance % shape.stride_h != 0) continue;
            const std::int64_t p = distance / shape.stride_h;
            if (p >= shape.P()) continue;
            const std::int64_t tap = (task.b * shape.R + r) * shape.S * blocks.block;
            filter[count++] = {at(diff_dst, dst.offset(task.n, task.b, p, 0)),
                               at(weights, tap * src.element)};
        }
        for (const Phase& columns : phases) {
            convolve({.rows = filter,
                      .row_count = count,
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
                      .dst = at(diff_src, src.offset(task.n, task.b, task.row, columns.first))});
        }
    });
}

}  // namespace dlprim
