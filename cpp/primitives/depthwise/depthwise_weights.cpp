// The gradient of depthwise weights: sums over all pixels of all images, in parts that depend on
// the shape alone, which are added up in their order.
#include <algorithm>
#include <cstring>

#include "jit/isa.h"
#include "primitives/depthwise/depthwise.h"
#include "primitives/depthwise/depthwise_geometry.h"
#include "primitives/depthwise/depthwise_rows.h"
#include "primitives/nest/fixed_parts.h"
#include "primitives/reorder/serial_moves.h"
#include "primitives/tensor/parallel.h"
#include "primitives/tensor/partition.h"

namespace dlprim {
namespace {

// What one vector of channels after the other reads from the L1 cache, a part of the rows at a
// time.
constexpr std::int64_t kBandBytes = 24 * 1024;
// Tasks that are enough for any number of threads.
constexpr std::int64_t kTasks = 64;
// Pixels of a part: enough that its sums cost little, few enough for one chain of float32.
constexpr std::int64_t kFewestPixels = 1024;
constexpr std::int64_t kMostPixels = 16 * 1024;

class WeightGradient {
public:
    explicit WeightGradient(const ConvProblem& problem)
        : problem_(problem),
          blocks_(src_blocks(problem.shape)),
          rows_(problem.shape.N * problem.shape.P()),
          band_(band(problem, blocks_)),
          parts_(parts(problem.shape, blocks_)),
          tap_distance_(rounded_up(blocks_.block, kMostChannels)),
          size_(rounded_up(problem.shape.R, kSummedRows) * problem.shape.S * tap_distance_),
          correlate_(correlate_rows_function(usable_isa(), problem.dtype)) {}

    std::int64_t scratch_bytes() const {
        return parts_ * blocks_.count() * size_ * size_of(DType::f32);
    }

    void write(const ConvTensors& tensors, float* scratch) {
        tensors_ = tensors;
        sums_ = scratch;
        const Blocks groups = block_groups(problem_);
        parallel_for(parts_ * groups.count(),
                     [&](std::int64_t task) { sum_part(task % parts_, groups.at(task / parts_)); });
        parallel_for(blocks_.count(), [&](std::int64_t b) {
            add_in_order({sums(0, b), parts_, size_}, {0, size_});
            write_block(b);
        });
    }

private:
    // Rows of diff_dst.
    static std::int64_t band(const ConvProblem& problem, const ChannelBlocks& blocks) {
        const ConvShape& shape = problem.shape;
        const std::int64_t pixels = shape.W * shape.stride_h + shape.Q();
        const std::int64_t bytes = pixels * blocks.block * size_of(problem.dtype);
        return std::max<std::int64_t>(kBandBytes / bytes, 1);
    }

    static std::int64_t parts(const ConvShape& shape, const ChannelBlocks& blocks) {
        const std::int64_t pixels = shape.N * shape.P() * shape.Q();
        const std::int64_t wanted = std::clamp(kTasks / blocks.count(), pixels / kMostPixels,
                                               std::max(pixels / kFewestPixels, std::int64_t{1}));
        return std::clamp(wanted, std::int64_t{1}, std::max(shape.N * shape.P(), std::int64_t{1}));
    }

    float* sums(std::int64_t part, std::int64_t b) const {
        return sums_ + (b * parts_ + part) * size_;
    }

    void sum_part(std::int64_t part, Range group) const {
        for (std::int64_t b = group.begin; b < group.end; ++b) {
            std::fill_n(sums(part, b), size_, 0.0F);
        }
        const std::int64_t P = problem_.shape.P();
        const Range rows = chunk(rows_, parts_, part);
        for (std::int64_t row = rows.begin; row < rows.end;) {
            const std::int64_t n = row / P;
            const std::int64_t end = std::min({rows.end, (n + 1) * P, row + band_});
            for (std::int64_t b = group.begin; b < group.end; ++b) {
                sum_rows(n, b, {row - n * P, end - n * P}, sums(part, b));
            }
            row = end;
        }
    }

    void sum_rows(std::int64_t n, std::int64_t b, Range rows, float* sums) const {
        const ConvShape& shape = problem_.shape;
        const Plane src = src_plane(problem_);
        const Plane dst = dst_plane(problem_);
        correlate_({.vertical = vertical(shape),
                    .horizontal = horizontal(shape),
                    .rows = rows,
                    .rows_ahead = fetches_rows(problem_) ? rows_ahead(shape.Q()) : 0,
                    .src = at(tensors_.src, src.offset(n, b, 0, 0)),
                    .src_row = src.row,
                    .src_distance = src.pixel,
                    .diff_dst = at(tensors_.diff_dst, dst.offset(n, b, 0, 0)),
                    .dst_row = dst.row,
                    .dst_distance = dst.pixel,
                    .channels = blocks_.in_block(b),
                    .sums = sums,
                    .sums_distance = tap_distance_});
    }

    // The sums of channels that do not exist are zero, and so is the padding of the result.
    void write_block(std::int64_t b) const {
        const DType to = tensors_.to;
        const std::int64_t taps = problem_.shape.R * problem_.shape.S;
        for (std::int64_t tap = 0; tap < taps; ++tap) {
            const float* const sum = sums(0, b) + tap * tap_distance_;
            char* const dst = at(tensors_.result, (b * taps + tap) * blocks_.block * size_of(to));
            if (to == DType::f32) {
                std::memcpy(dst, sum, static_cast<std::size_t>(blocks_.block) * sizeof(float));
            } else {
                round_row(sum, reinterpret_cast<std::uint16_t*>(dst), blocks_.block);
            }
        }
    }

    const ConvProblem& problem_;
    ChannelBlocks blocks_;
    std::int64_t rows_;  // of all images
    std::int64_t band_;
    std::int64_t parts_;
    std::int64_t tap_distance_;
    std::int64_t size_;  // of the sums of one part of one block
    CorrelateRows correlate_;
    ConvTensors tensors_ = {};
    float* sums_ = nullptr;
};

}  // namespace

std::int64_t depthwise_weights_scratch_bytes(const ConvProblem& problem) {
    return WeightGradient(problem).scratch_bytes();
}

void depthwise_backward_weights(const ConvProblem& problem, const ConvTensors& tensors,
                                char* scratch) {
    WeightGradient(problem).write(tensors, reinterpret_cast<float*>(scratch));
}

}  // namespace dlprim
