// What both directions of batch normalisation share: sums over pieces of a block of channels, their
// combination in a fixed order, and a second pass over the block that follows while the caches
// still hold it. Internal to batch_norm_*.cpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include "primitives/layers/batch_norm.h"
#include "primitives/layers/channel_panels.h"
#include "primitives/layers/pixel_programs.h"
#include "primitives/nest/fixed_parts.h"
#include "primitives/tensor/parallel.h"
#include "primitives/tensor/workspace.h"

namespace dlprim {

// Pixels of a task: few enough for one chain of float32 additions to be accurate.
inline constexpr std::int64_t kMostPixels = 512;
// Blocks of channels that are reduced together before they are read again, in bytes of a tensor for
// each thread: about its L2 cache.
inline constexpr std::int64_t kCachedBytes = 1024 * 1024;
// Channels whose sums one task combines.
inline constexpr std::int64_t kCombinedChannels = 64;

// Rows of float32 values by channel.
class Rows {
public:
    Rows(std::int64_t rows, std::int64_t channels)
        : count_(rows),
          distance_(rounded_up(channels, kLineFloats)),
          memory_(WorkspacePool::lasting(), rows * distance_ * size_of(DType::f32)) {}
    float* row(std::int64_t index) const {
        return reinterpret_cast<float*>(memory_.data()) + index * distance_;
    }
    SumCopies copies() const { return {row(0), count_, distance_}; }

private:
    std::int64_t count_;
    std::int64_t distance_;
    WorkspacePool::Lease memory_;
};

// `values`, or a row of `otherwise`.
inline const float* or_constant(const float* values, float otherwise, float* row,
                                std::int64_t channels) {
    if (values != nullptr) return values;
    std::fill_n(row, channels, otherwise);
    return row;
}

// Both directions: sums over pieces of a block of channels, combined, then a pass that uses them.
class NormPass {
public:
    // Of at least one pixel.
    explicit NormPass(const BatchNorm& norm)
        : norm_(norm),
          panels_(norm.tensor, norm.layout),
          pieces_(panels_, norm.tensor.dtype, kPieceBytes, kMostPixels),
          channels_(norm.tensor.blocks.total()),
          centres_(pieces_.count(), channels_),
          sums_(pieces_.count(), channels_),
          products_(pieces_.count(), channels_) {}

protected:
    // Null stays null.
    static const char* at(const void* tensor, std::int64_t bytes) {
        return tensor == nullptr ? nullptr : static_cast<const char*>(tensor) + bytes;
    }

    double pixels() const { return static_cast<double>(panels_.images * panels_.pixels); }

    // pass.add_up(piece, block) for all pieces, pass.combine(channels), then pass.apply(piece,
    // block), where the pass has something to write, while the caches still hold the block.
    template <class Pass>
    void sum_and_apply(const Pass& pass, bool applies) const {
        const std::int64_t bytes =
            panels_.images * panels_.pixels * panels_.width * size_of(norm_.tensor.dtype);
        const std::int64_t together = num_threads() * kCachedBytes / bytes;
        const Blocks groups{panels_.blocks, std::max<std::int64_t>(together, 1)};
        for (std::int64_t i = 0; i < groups.count(); ++i) {
            const Range blocks = groups.at(i);
            pieces_.for_each(
                blocks, TaskOrder::ascending,
                [&](std::int64_t piece, std::int64_t block) { pass.add_up(piece, block); });
            for_channels(channels_of(blocks), [&](Range channels) { pass.combine(channels); });
            if (applies) apply_to(pass, blocks, TaskOrder::descending);
        }
    }

    template <class Pass>
    void apply_to(const Pass& pass, Range blocks, TaskOrder order) const {
        pieces_.for_each(blocks, order,
                         [&](std::int64_t piece, std::int64_t block) { pass.apply(piece, block); });
    }

    Range channels_of(Range blocks) const {
        return {panels_.channels(blocks.begin).begin, panels_.channels(blocks.end - 1).end};
    }

    // Chunks of the channels, for what follows a pass.
    template <class Body>
    void for_channels(Range channels, const Body& body) const {
        const Blocks chunks{channels.size(), kCombinedChannels};
        parallel_for(chunks.count(), [&](std::int64_t task) {
            const Range part = chunks.at(task);
            body(Range{channels.begin + part.begin, channels.begin + part.end});
        });
    }

    const PixelProgram& program(PixelPass pass, const PixelRows& like) const {
        return PixelProgram::of(pass, norm_.tensor.dtype, like);
    }

    PixelRows rows_of(std::int64_t piece, std::int64_t block) const {
        PixelRows it = pieces_.rows(piece, block);
        it.relu = norm_.relu;
        return it;
    }

    BatchNorm norm_;
    ChannelPanels panels_;
    PixelPieces pieces_;
    std::int64_t channels_;
    Rows centres_;  // by piece: a value near the mean, then the mean
    Rows sums_;
    Rows products_;
};

}  // namespace dlprim
