// The gradient of depthwise weights: sums over all pixels of all images, in parts that depend on
// the shape alone, which are added up in their order.
#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

#include "primitives/depthwise/depthwise.h"
#include "primitives/depthwise/depthwise_geometry.h"
#include "primitives/depthwise/depthwise_programs.h"
#include "primitives/nest/fixed_parts.h"
#include "primitives/reorder/serial_moves.h"
#include "primitives/tensor/parallel.h"
#include "rows/row_kernel.h"

namespace dlprim {
namespace {

// What one block of channels after the other reads, part of the rows at a time: it stays in the L1
// cache.
constexpr std::int64_t kBandBytes = 24 * 1024;
// Tasks that are enough for any number of threads.
constexpr std::int64_t kTasks = 64;
// Pixels of a part: enough that its sums cost little, few enough for one chain of float32.
constexpr std::int64_t kFewestPixels = 1024;
constexpr std::int64_t kMostPixels = 16 * 1024;
// Filter rows whose gradients are summed together.
constexpr std::int64_t kSummedRows = 3;

// Rows of diff_dst.
std::int64_t rows_of_band(const ConvProblem& problem, const ChannelBlocks& blocks) {
    const std::int64_t pixels = problem.shape.W * problem.shape.stride_h + problem.shape.Q();
    return std::max<std::int64_t>(kBandBytes / (pixels * blocks.block * size_of(problem.dtype)), 1);
}

std::int64_t parts_of(const ConvShape& shape, const ChannelBlocks& blocks) {
    const std::int64_t pixels = shape.N * shape.P() * shape.Q();
    const std::int64_t wanted = std::clamp(kTasks / blocks.count(), pixels / kMostPixels,
                                           std::max(pixels / kFewestPixels, std::int64_t{1}));
    return std::clamp(wanted, std::int64_t{1}, std::max(shape.N * shape.P(), std::int64_t{1}));
}

class WeightsPass final : public DepthwiseWeights {
public:
    explicit WeightsPass(const ConvProblem& problem)
        : problem_(problem),
          blocks_(src_blocks(problem.shape)),
          down_(vertical(problem.shape)),
          across_(horizontal(problem.shape)),
          src_(src_plane(problem)),
          dst_(dst_plane(problem)),
          band_(rows_of_band(problem, blocks_)),
          parts_(parts_of(problem.shape, blocks_)),
          size_(problem.shape.R * problem.shape.S * blocks_.block) {}

    std::int64_t scratch_bytes() const override {
        return parts_ * blocks_.count() * size_ * size_of(DType::f32);
    }

    void run(const ConvTensors& tensors) const override {
        const WorkspacePool::Lease scratch(workspaces(), scratch_bytes());
        write(tensors, scratch.data());
    }

    void write(const ConvTensors& tensors, char* scratch) const override {
        std::call_once(programs_made_, [&] { make_programs(); });
        const Call call{tensors, reinterpret_cast<float*>(scratch)};
        const Blocks groups = block_groups(problem_);
        parallel_for(parts_ * groups.count(), [&](std::int64_t task) {
            sum_part(call, task % parts_, groups.at(task / parts_));
        });
        parallel_for(blocks_.count(), [&](std::int64_t b) {
            add_in_order({sums(call, 0, b), parts_, size_}, {0, size_});
            write_block(call, b);
        });
    }

private:
    struct Call {
        const ConvTensors& tensors;
        float* sums;
    };

    // Taps of a row of the filter whose sums are made together, and tiles of one form with a
    // program for each number of rows of the filter.
    struct Run {
        Range taps;
        DepthwiseRun tiles;
        std::array<std::shared_ptr<const RowKernel>, kSummedRows> kernels;
    };

    // Rows of diff_dst of a block of channels of an image that see the same rows of the filter.
    struct Rows {
        std::int64_t image;
        std::int64_t block;
        Range rows;
        SeenTaps seen;
        float* sums;
    };

    void make_programs() const {
        const Correlated together = correlated_together();
        const std::int64_t groups = (across_.taps + together.taps - 1) / together.taps;
        const std::int64_t tap = blocks_.block * size_of(DType::f32);
        const DepthwiseDistances apart{.src_row = down_.spread * src_.row,
                                       .src_pixel = src_.pixel,
                                       .weights_row = across_.taps * tap,
                                       .weights_tap = tap,
                                       .dst_pixel = dst_.pixel};
        std::vector<Run> runs;
        for (std::int64_t i = 0; i < groups; ++i) {
            const Range taps = chunk(across_.taps, groups, i);
            const std::int64_t first = across_.position(0, taps.begin);
            const DepthwiseTile whole{.results = across_.results,
                                      .step = across_.step,
                                      .taps = taps.size(),
                                      .spread = across_.spread,
                                      .columns = {-first, across_.extent - first}};
            for (const DepthwiseRun& tiles : runs_of(whole, together.results)) {
                Run run{taps, tiles, {}};
                for (std::int64_t rows = 1; rows <= std::min(kSummedRows, down_.taps); ++rows) {
                    run.kernels.at(static_cast<std::size_t>(rows - 1)) =
                        row_kernel(correlation_program(problem_.dtype, tiles.tile, rows, apart));
                }
                runs.push_back(std::move(run));
            }
        }
        single_tiles_ = std::all_of(runs.begin(), runs.end(),
                                    [](const Run& run) { return run.tiles.count == 1; });
        runs_ = std::move(runs);
    }

    float* sums(const Call& call, std::int64_t part, std::int64_t b) const {
        return call.sums + (b * parts_ + part) * size_;
    }

    void sum_part(const Call& call, std::int64_t part, Range group) const {
        for (std::int64_t b = group.begin; b < group.end; ++b) {
            std::fill_n(sums(call, part, b), size_, 0.0F);
        }
        const std::int64_t P = down_.results;
        const Range rows = chunk(problem_.shape.N * P, parts_, part);
        for (std::int64_t row = rows.begin; row < rows.end;) {
            const std::int64_t n = row / P;
            const std::int64_t end = std::min({rows.end, (n + 1) * P, row + band_});
            for (std::int64_t b = group.begin; b < group.end; ++b) {
                sum_rows(call, {n, b, {row - n * P, end - n * P}, {}, sums(call, part, b)});
            }
            row = end;
        }
    }

    // Of the filter rows from r on that have sums together.
    SeenTaps seen(std::int64_t row, std::int64_t r) const {
        return inside({.taps = std::min(kSummedRows, down_.taps - r),
                       .first_tap = r,
                       .position = down_.position(row, r),
                       .spread = down_.spread},
                      down_.extent);
    }

    void sum_rows(const Call& call, const Rows& all) const {
        for (std::int64_t r = 0; r < down_.taps; r += kSummedRows) {
            Rows some = all;
            for (std::int64_t row = all.rows.begin; row < all.rows.end; row = some.rows.end) {
                some.seen = seen(row, r);
                some.rows = {row, row + 1};
                const auto goes_on = [&](const SeenTaps& next) {
                    return next.taps == some.seen.taps && next.first_tap == some.seen.first_tap;
                };
                while (single_tiles_ && some.rows.end < all.rows.end &&
                       goes_on(seen(some.rows.end, r))) {
                    ++some.rows.end;
                }
                if (some.seen.taps == 0) continue;
                for (const Run& run : runs_) correlate(call, some, run);
            }
        }
    }

    void correlate(const Call& call, const Rows& it, const Run& run) const {
        const std::int64_t first = run.tiles.first;
        const std::int64_t column = across_.position(first, run.taps.begin);
        const std::int64_t tap = it.seen.first_tap * across_.taps + run.taps.begin;
        RowArgs args;
        args.rows = run.tiles.calls(it.rows.size());
        args.columns = blocks_.in_block(it.block);
        args.operands[0] =
            operand(call.tensors.src, src_.offset(it.image, it.block, it.seen.position, column),
                    run.tiles.stride(across_.step * src_.pixel, down_.step * src_.row));
        args.operands[1] =
            operand(call.tensors.diff_dst, dst_.offset(it.image, it.block, it.rows.begin, first),
                    run.tiles.stride(dst_.pixel, dst_.row));
        args.operands[2] = {it.sums + tap * blocks_.block, 0};
        (*run.kernels.at(static_cast<std::size_t>(it.seen.taps - 1)))(args);
    }

    // The sums of channels that do not exist are zero, and so is the padding of the result.
    void write_block(const Call& call, std::int64_t b) const {
        char* const dst =
            static_cast<char*>(call.tensors.result) + b * size_ * size_of(call.tensors.to);
        if (call.tensors.to == DType::f32) {
            std::memcpy(dst, sums(call, 0, b), static_cast<std::size_t>(size_) * sizeof(float));
        } else {
            round_row(sums(call, 0, b), reinterpret_cast<std::uint16_t*>(dst), size_);
        }
    }

    ConvProblem problem_;
    ChannelBlocks blocks_;
    DepthwiseAxis down_;
    DepthwiseAxis across_;
    Plane src_;
    Plane dst_;
    std::int64_t band_;
    std::int64_t parts_;
    std::int64_t size_;  // of the sums of one part of one block
    mutable std::once_flag programs_made_;
    mutable std::vector<Run> runs_;
    mutable bool single_tiles_ = true;
};

}  // namespace

std::unique_ptr<DepthwiseWeights> depthwise_weights_pass(const ConvSpec& spec) {
    return std::make_unique<WeightsPass>(spec.problem());
}

}  // namespace dlprim
