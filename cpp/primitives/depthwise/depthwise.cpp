// Forward and backward-data, row by row.
#include "primitives/depthwise/depthwise.h"

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <numeric>
#include <utility>
#include <vector>

#include "jit/machine.h"
#include "primitives/depthwise/depthwise_geometry.h"
#include "primitives/depthwise/depthwise_programs.h"
#include "primitives/tensor/parallel.h"
#include "rows/row_kernel.h"

namespace dlprim {
namespace {

// What a task writes: long enough to hide the cost of handing it out, short enough for the rows
// that it reads to stay in the L2 cache.
constexpr std::int64_t kTaskBytes = 128 * 1024;
// Taps of a program, as far as whole rows of the filter go: more take too long to generate.
constexpr std::int64_t kMostTaps = 49;

SeenTaps forward_taps(const DepthwiseAxis& axis, std::int64_t result) {
    return {.taps = axis.taps, .position = axis.position(result, 0), .spread = axis.spread};
}

SeenTaps backward_taps(const DepthwiseAxis& axis, std::int64_t input) {
    const std::int64_t common = std::gcd(axis.step, axis.spread);
    SeenTaps found{.every = -axis.step / common, .spread = axis.spread / common};
    for (std::int64_t tap = 0; tap < axis.taps; ++tap) {
        const std::int64_t distance = input + axis.before - tap * axis.spread;
        if (distance % axis.step != 0) continue;
        ++found.taps;
        found.first_tap = tap;
        found.position = distance / axis.step;
    }
    return found;
}

// Forward: src to dst. Backward-data: diff_dst to diff_src, with the taps from the last to the
// first, one after the other those results of a row that are a stride apart.
class DepthwiseImages final : public ConvPass {
public:
    DepthwiseImages(const ConvSpec& spec, PassKind pass)
        : problem_(spec.problem()),
          blocks_(src_blocks(spec.shape, spec.dtype)),
          forward_(pass == PassKind::forward),
          activation_(forward_ ? spec.activation : Activation::none),
          from_(forward_ ? src_plane(problem_) : dst_plane(problem_)),
          to_(forward_ ? dst_plane(problem_) : src_plane(problem_)),
          mask_(mask_plane(problem_)),
          columns_(forward_ ? spec.shape.Q() : spec.shape.W),
          apart_(forward_ ? 1 : spec.shape.stride_w),
          step_(forward_ ? spec.shape.stride_w : 1),
          tap_(blocks_.block * size_of(spec.dtype)),
          rows_together_(std::max<std::int64_t>(kMostTaps / spec.shape.S, 1)) {
        const std::int64_t height = forward_ ? spec.shape.H : spec.shape.P();
        const std::int64_t rows = forward_ ? spec.shape.P() : spec.shape.H;
        for (std::int64_t row = 0; row < rows; ++row) {
            rows_.push_back(inside(taps(vertical(spec.shape), row), height));
        }
    }

    void run(const ConvTensors& given) const override {
        // What follows the sums is forward's.
        const ConvTensors data{
            .diff_dst = given.diff_dst, .weights = given.weights, .result = given.result};
        const ConvTensors& tensors = forward_ ? given : data;
        const WorkspacePool::Lease numbers(workspaces(), numbers_bytes());
        if (is_quantized()) write_numbers(tensors, reinterpret_cast<float*>(numbers.data()));
        const std::vector<Run>& runs = runs_for(tensors);
        const bool single_tiles = std::all_of(runs.begin(), runs.end(),
                                              [](const Run& run) { return run.tiles.count == 1; });
        for_rows(single_tiles, [&](Rows rows) {
            const std::int64_t taps = rows_[static_cast<std::size_t>(rows.first)].taps;
            const std::int64_t pixels = taps > rows_together_ ? rows.count * columns_ : 0;
            const WorkspacePool::Lease sums(workspaces(), pixels * sums_pixel());
            rows.sums = sums.data();
            rows.numbers = numbers.data();
            for (const Run& run : runs) {
                for (std::int64_t r = 0; r == 0 || r < taps; r += rows_together_) {
                    convolve(rows, run, r, tensors);
                }
            }
        });
    }

    std::int64_t scratch_bytes() const override {
        if (problem_.shape.R <= rows_together_) return numbers_bytes();
        return numbers_bytes() + num_threads() * rows_of_task() * columns_ * sums_pixel();
    }

private:
    // Some rows of a block of channels of an image that see the same taps.
    struct Rows {
        std::int64_t image;
        std::int64_t block;
        std::int64_t first;
        std::int64_t count;
        char* sums = nullptr;
        const char* numbers = nullptr;
    };

    // What quantised programs read as float32: an integer bias, and single numbers behind it.
    enum Number : std::int64_t { kResidualScale, kLowest, kHighest, kZeroPoint, kNumbers };

    struct Run {
        DepthwiseRun tiles;
        std::int64_t column;  // of what is read, under the first tap
        std::int64_t first_tap;
        std::int64_t result;
        bool is_bounded;
        bool is_shifted;
        std::map<DepthwiseSums, std::shared_ptr<const RowKernel>> kernels;
    };

    struct Variant {
        std::once_flag made;
        std::vector<Run> runs;
    };

    bool is_blocked() const { return problem_.layout == Format::blocked; }

    bool is_quantized() const { return is_int8(problem_.dtype); }
    std::int64_t numbers_bytes() const {
        return is_quantized() ? aligned((problem_.shape.K + kNumbers) * size_of(DType::f32)) : 0;
    }
    ResultRange range(const ConvTensors& it) const {
        return held_range(it.quantization.range, problem_.dst_dtype, activation_);
    }
    void write_numbers(const ConvTensors& it, float* to) const {
        const Quantization& with = it.quantization;
        const ResultRange range = this->range(it);
        const std::int64_t channels = problem_.shape.K;
        std::copy_n(with.int_bias, channels, to);
        to[channels + kResidualScale] = with.residual_scale;
        to[channels + kLowest] = range.lowest;
        to[channels + kHighest] = range.highest;
        to[channels + kZeroPoint] = static_cast<float>(range.zero_point);
    }

    std::int64_t sums_pixel() const { return blocks_.block * size_of(DType::f32); }

    SeenTaps taps(const DepthwiseAxis& axis, std::int64_t result) const {
        return forward_ ? forward_taps(axis, result) : backward_taps(axis, result);
    }

    const std::vector<Run>& runs_for(const ConvTensors& it) const {
        const ResultRange range = this->range(it);
        const ResultRange all =
            held_range({.zero_point = range.zero_point}, problem_.dst_dtype, Activation::none);
        const DepthwiseEpilogue epilogue{
            .bias = it.bias != nullptr,
            .residual = it.residual != nullptr,
            .relu_mask = it.relu_mask != nullptr,
            .activation = activation_,
            .quantized = is_quantized(),
            .dst = problem_.result(),
            .is_bounded = range.lowest > all.lowest || range.highest < all.highest,
            .is_shifted = range.zero_point != 0};
        const int index = (epilogue.bias ? 1 : 0) + (epilogue.residual ? 2 : 0) +
                          (epilogue.relu_mask ? 4 : 0) + (epilogue.is_bounded ? 8 : 0) +
                          (epilogue.is_shifted ? 16 : 0);
        Variant& variant = variants_.at(static_cast<std::size_t>(index));
        std::call_once(variant.made, [&] { variant.runs = make_runs(epilogue); });
        return variant.runs;
    }

    std::vector<Run> make_runs(const DepthwiseEpilogue& epilogue) const {
        std::vector<Run> runs;
        const std::int64_t width = forward_ ? problem_.shape.W : problem_.shape.Q();
        for (std::int64_t first = 0; first < std::min(apart_, columns_); ++first) {
            const SeenTaps across = taps(horizontal(problem_.shape), first);
            const DepthwiseTile whole{.results = (columns_ - first - 1) / apart_ + 1,
                                      .step = step_,
                                      .taps = across.taps,
                                      .spread = across.spread,
                                      .columns = {-across.position, width - across.position}};
            for (const DepthwiseRun& tiles : runs_of(whole, convolved_together(whole))) {
                runs.push_back({.tiles = tiles,
                                .column = across.position + tiles.first * step_,
                                .first_tap = across.first_tap,
                                .result = first + tiles.first * apart_,
                                .is_bounded = epilogue.is_bounded,
                                .is_shifted = epilogue.is_shifted,
                                .kernels = {}});
                for (const SeenTaps& row : rows_) add_kernels(runs.back(), row, across, epilogue);
            }
        }
        return runs;
    }

    void add_kernels(Run& run, const SeenTaps& row, const SeenTaps& across,
                     const DepthwiseEpilogue& epilogue) const {
        const DepthwiseDistances apart{.src_row = row.spread * from_.row,
                                       .src_pixel = from_.pixel,
                                       .weights_row = row.every * problem_.shape.S * tap_,
                                       .weights_tap = across.every * tap_,
                                       .dst_pixel = apart_ * to_.pixel,
                                       .sums_pixel = sums_pixel(),
                                       .mask_pixel = apart_ * mask_.pixel,
                                       .fetched_rows = fetches() ? row_step() : 0,
                                       .fetched_row = from_.row};
        for (std::int64_t r = 0; r == 0 || r < row.taps; r += rows_together_) {
            auto& kernel = run.kernels[part(row, r)];
            if (kernel != nullptr) continue;
            kernel = row_kernel(
                convolution_program(problem_.dtype, run.tiles.tile, part(row, r), apart, epilogue));
        }
    }

    // From farther away than the L2 cache fetches gain a fifth, from there they cost a tenth.
    bool fetches() const {
        const std::int64_t bytes = problem_.shape.N * (from_.image + to_.image);
        return static_cast<double>(bytes) > 2 * this_machine().l2;
    }

    // From the filter row r of those seen on.
    DepthwiseSums part(const SeenTaps& row, std::int64_t r) const {
        return {std::min(rows_together_, row.taps - r), r == 0, r + rows_together_ >= row.taps};
    }

    void convolve(const Rows& rows, const Run& run, std::int64_t r, const ConvTensors& it) const {
        const SeenTaps& seen = rows_[static_cast<std::size_t>(rows.first)];
        const DepthwiseSums part = this->part(seen, r);
        const std::int64_t dst = to_.offset(rows.image, rows.block, rows.first, run.result);
        const std::int64_t dst_stride = run.tiles.stride(apart_ * to_.pixel, to_.row);
        const std::int64_t tap =
            (rows.block * problem_.shape.R + seen.first_tap + r * seen.every) * problem_.shape.S +
            run.first_tap;
        RowArgs args;
        args.rows = run.tiles.calls(rows.count);
        args.columns = blocks_.in_block(rows.block);
        auto* next = args.operands.data();
        *next++ = operand(
            forward_ ? it.src : it.diff_dst,
            from_.offset(rows.image, rows.block, seen.position + r * seen.spread, run.column),
            run.tiles.stride(step_ * from_.pixel, row_step() * from_.row));
        *next++ = operand(it.weights, tap * tap_, 0);
        const RowArgs::Operand sums(rows.sums, run.tiles.tile.results * sums_pixel());
        const std::int64_t channels = rows.block * sums_pixel();
        if (!part.begin) {
            *next++ = sums;
        } else if (is_quantized()) {
            *next++ = operand(rows.numbers, channels, 0);
        } else if (it.bias != nullptr) {
            *next++ = operand(it.bias, channels, 0);
        }
        if (part.end && is_quantized()) {
            *next++ = operand(it.quantization.scale, channels, 0);
            if (it.bias != nullptr) *next++ = operand(it.bias, channels, 0);
        }
        const auto number = [&](Number which) {
            if (!is_quantized() || !is_int8(problem_.dst_dtype)) return;
            *next++ = operand(rows.numbers, (problem_.shape.K + which) * size_of(DType::f32), 0);
        };
        if (part.end && it.residual != nullptr) {
            *next++ = operand(it.residual, dst, dst_stride);
            number(kResidualScale);
        }
        if (part.end && run.is_bounded) {
            for (const Number which : {kLowest, kHighest}) number(which);
        }
        if (part.end && run.is_shifted) number(kZeroPoint);
        *next++ = part.end ? operand(it.result, dst, dst_stride) : sums;
        if (part.end && it.relu_mask != nullptr) {
            *next++ =
                operand(it.relu_mask, mask_.offset(rows.image, rows.block, rows.first, run.result),
                        run.tiles.stride(apart_ * mask_.pixel, mask_.row));
        }
        (*run.kernels.at(part))(args);
    }

    // Of what is read, from a row of results to the next that sees the same taps.
    std::int64_t row_step() const { return forward_ ? problem_.shape.stride_h : 1; }

    // So that threads have equal shares, as far as there are rows, and channels-last whole pixels,
    // which products before and behind share like that. Tasks do not show in the bits.
    std::int64_t rows_of_task() const {
        const std::int64_t rows = std::ssize(rows_), threads = num_threads();
        const std::int64_t groups = is_blocked() ? block_groups(problem_).count() : 1;
        const std::int64_t others = problem_.shape.N * groups;
        std::int64_t bands = std::max<std::int64_t>(rows * to_.row / kTaskBytes, 1);
        while (bands < rows && others * bands % threads != 0) ++bands;
        return std::max<std::int64_t>((rows + bands - 1) / bands, 1);
    }

    // body(rows) for all rows of results. Neighbouring rows go to one thread, since they read the
    // same rows.
    template <class Body>
    void for_rows(bool together, const Body& body) const {
        const Blocks bands{std::ssize(rows_), rows_of_task()};
        const Blocks groups = block_groups(problem_);
        // Blocked, a block of an image is contiguous; channels-last, a row of all blocks is.
        const std::int64_t inner = is_blocked() ? bands.count() : groups.count();
        const std::int64_t outer = is_blocked() ? groups.count() : bands.count();
        parallel_for(problem_.shape.N * inner * outer, [&](std::int64_t task) {
            const std::int64_t n = task / (inner * outer);
            const std::int64_t i = task / inner % outer;
            const std::int64_t j = task % inner;
            const Range band = bands.at(is_blocked() ? j : i);
            const Range group = groups.at(is_blocked() ? i : j);
            for (std::int64_t row = band.begin; row < band.end;) {
                const std::int64_t count = together ? alike(row, band.end) : 1;
                for (std::int64_t b = group.begin; b < group.end; ++b) body({n, b, row, count});
                row += count;
            }
        });
    }

    // How many rows from `row` on see the same taps.
    std::int64_t alike(std::int64_t row, std::int64_t end) const {
        const auto* const first = rows_.data() + row;
        return std::find_if(first, rows_.data() + end,
                            [&](const SeenTaps& it) {
                                return it.taps != first->taps || it.first_tap != first->first_tap;
                            }) -
               first;
    }

    ConvProblem problem_;
    ChannelBlocks blocks_;
    bool forward_;
    Activation activation_;
    Plane from_;
    Plane to_;
    Plane mask_;
    std::int64_t columns_;        // of results
    std::int64_t apart_;          // results of a row that see the same taps
    std::int64_t step_;           // columns from one of them to the next
    std::int64_t tap_;            // bytes
    std::int64_t rows_together_;  // of the filter, in a program
    std::vector<SeenTaps> rows_;
    mutable std::array<Variant, 32> variants_;
};

}  // namespace

std::unique_ptr<ConvPass> depthwise_images_pass(const ConvSpec& spec, PassKind pass) {
    return std::make_unique<DepthwiseImages>(spec, pass);
}

}  // namespace dlprim
