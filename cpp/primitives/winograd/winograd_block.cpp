// What WinogradPass does with one block of tiles: inputs to slots, products, slots to results.
#include <algorithm>

#include "primitives/tensor/parallel.h"
#include "primitives/winograd/winograd_pass.h"

namespace dlprim {
namespace {

constexpr std::int64_t kTaps = 3;

const char* at(const void* base, std::int64_t bytes) {
    return static_cast<const char*>(base) + bytes;
}

}  // namespace

// Channels [begin, end) of the sum, one after the other, to rows of U.
void WinogradPass::transform_block(const void* weights, std::int64_t out_block, Range channels,
                                   std::int64_t slot_stride, float* transformed) const {
    const ChannelBlocks& in = problem_.in;
    const std::int64_t width = problem_.out.block;
    const bool pairs = problem_.dtype == DType::bf16;
    const std::int64_t element = pairs ? 2 * size_of(DType::bf16) : size_of(DType::f32);
    const std::int64_t rows = pairs ? (in.block + 1) / 2 : in.block;
    const std::int64_t tap = rows * width;
    const std::int64_t turn = problem_.turned ? -1 : 1;
    const std::int64_t first_tap = problem_.turned ? (kTaps * kTaps - 1) * tap : 0;
    for (std::int64_t c = channels.begin; c < channels.end; ++c) {
        const std::int64_t block = out_block * in.per_group() + c / in.block;
        const std::int64_t inner = c % in.block;
        const std::int64_t row = pairs ? inner / 2 : inner;
        const std::int64_t offset = block * kTaps * kTaps * tap + first_tap + row * width;
        filter_functions_[pairs ? inner % 2 : 0](
            {.first = at(weights, offset * element),
             .row = turn * kTaps * tap,
             .pixel = turn * tap,
             .channels = width,
             .slots = transformed + (c - channels.begin) * filter_.ld,
             .slot_stride = slot_stride});
    }
}

void WinogradPass::transform_weights(const void* weights, float* transformed) const {
    parallel_for(problem_.out.count(), [&](std::int64_t block) {
        transform_block(weights, block, {0, problem_.in.channels}, filter_.stride,
                        transformed + block * floats(filter_));
    });
}

// A piece is a class of tiles of a block of channels.
void WinogradPass::expand(const void* src, const Box& box, const TileBlock& tiles,
                          std::int64_t piece, float* slots) const {
    const std::int64_t block = piece / TileBlock::kClasses;
    in_.expand(src, grid_, tiles, static_cast<int>(piece % TileBlock::kClasses),
               box.group * problem_.in.per_group() + block, slots_,
               slots + block * problem_.in.block);
}

// The result channels of some tasks of their nest.
void WinogradPass::compute(const WinogradTensors& tensors, const Box& box, const TileBlock& tiles,
                           Range tasks, const Place& place) const {
    channels_.run(tasks, [&](const LoopNest::Ranges& channels) {
        for (std::int64_t k = channels[0].begin; k < channels[0].end; ++k) {
            const std::int64_t out_block = box.group * problem_.out.per_group() + k;
            multiply(tensors, out_block, tiles, place);
            reduce(tensors, box, tiles, out_block, place.sums);
        }
    });
}

void WinogradPass::multiply(const WinogradTensors& tensors, std::int64_t out_block,
                            const TileBlock& tiles, const Place& place) const {
    const std::int64_t columns = out_columns(out_block % problem_.out.per_group());
    const std::int64_t channels = problem_.in.channels;
    if (tensors.transformed != nullptr) {
        products_.plan({tiles.counts(), columns, channels})
            .run({.a = place.slots,
                  .b = tensors.transformed + out_block * floats(filter_),
                  .c = place.sums},
                 nullptr, 1);
        return;
    }
    for (std::int64_t c = 0; c < channels; c += problem_.in.block) {
        const Range now{c, std::min(c + problem_.in.block, channels)};
        transform_block(tensors.weights, out_block, now, panel_.stride, place.filter);
        products_.plan({tiles.counts(), columns, now.size(), false, true})
            .run({.a = place.slots + c, .b = place.filter, .c = place.sums, .accumulate = c > 0},
                 nullptr, 1);
    }
}

void WinogradPass::reduce(const WinogradTensors& tensors, const Box& box, const TileBlock& tiles,
                          std::int64_t out_block, const float* sums) const {
    const std::int64_t element = size_of(problem_.dtype);
    const std::int64_t block = out_block % problem_.out.per_group();
    TileResult result{.slot_stride = sums_.stride,
                      .row = out_.row,
                      .pixel = out_.pixel,
                      .channels = problem_.out.in_block(block),
                      .relu = tensors.relu};
    if (tensors.bias != nullptr) {
        result.bias = tensors.bias + box.group * problem_.out.channels + block * problem_.out.block;
    }
    const std::int64_t first = box.group * out_.group + block * out_.block;
    for (int which = 0; which < TileBlock::kClasses; ++which) {
        tiles.for_each(which, [&](std::int64_t t, std::int64_t n, std::int64_t h, std::int64_t w) {
            const std::int64_t y = grid_.rows.begin(h);
            const std::int64_t x = grid_.columns.begin(w);
            const std::int64_t offset =
                (first + n * out_.image + y * out_.row + x * out_.pixel) * element;
            result.slots = sums + t * sums_.ld;
            result.first = static_cast<char*>(tensors.dst) + offset;
            if (tensors.residual != nullptr) result.residual = at(tensors.residual, offset);
            result.rows = static_cast<int>(
                std::min<std::int64_t>(grid_.rows.size(h), problem_.out_height - y));
            result.columns = static_cast<int>(
                std::min<std::int64_t>(grid_.columns.size(w), problem_.out_width - x));
            reduce_[which](result);
        });
    }
}

}  // namespace dlprim
