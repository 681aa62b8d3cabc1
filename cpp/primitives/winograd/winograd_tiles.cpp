#include "primitives/winograd/winograd_tiles.h"

#include <algorithm>

namespace dlprim {
namespace {

constexpr std::int64_t kPiecesOfThread = 4;

}  // namespace

AxisTiles axis_tiles(std::int64_t extent, int large) {
    const std::int64_t tiles = (extent + large - 1) / large;
    if (large == 2) return {large, tiles, 0};
    const std::int64_t threes = std::min(tiles, tiles * large - extent);
    return {large, tiles - threes, threes};
}

Range existing(std::int64_t first, std::int64_t count, std::int64_t extent) {
    const std::int64_t begin = std::clamp<std::int64_t>(-first, 0, count);
    return {begin, std::clamp<std::int64_t>(extent - first, begin, count)};
}

TileBlock::TileBlock(const TileGrid& grid, Range images, Range rows, Range columns)
    : images_(images) {
    const auto part = [](Range tiles, std::int64_t larges, bool is_large) {
        const std::int64_t middle = std::clamp(larges, tiles.begin, tiles.end);
        return is_large ? Range{tiles.begin, middle} : Range{middle, tiles.end};
    };
    for (int which = 0; which < kClasses; ++which) {
        const auto index = static_cast<std::size_t>(which);
        rows_[index] = part(rows, grid.rows.larges, is_large_h(which));
        columns_[index] = part(columns, grid.columns.larges, is_large_w(which));
        lines_[index] = columns_[index].size() == 0 ? 0 : images.size() * rows_[index].size();
        counts_[index] = lines_[index] * columns_[index].size();
    }
}

Blocks TileBlock::pieces(std::int64_t channel_blocks, int threads) const {
    const std::int64_t wanted = threads == 1 ? 1 : threads * kPiecesOfThread / channel_blocks;
    const std::int64_t parts = std::max<std::int64_t>(wanted, 1);
    return {lines(), std::max<std::int64_t>((lines() + parts - 1) / parts, 1)};
}

void TileBlockKinds::add(const TileBlock& tiles) {
    ++blocks;
    most_tiles = std::max(most_tiles, tiles_of(tiles.counts()));
    if (std::find(kinds.begin(), kinds.end(), tiles.counts()) == kinds.end()) {
        kinds.push_back(tiles.counts());
    }
}

std::int64_t tiles_of(const TileBlock::Counts& counts) {
    return counts[0] + counts[1] + counts[2] + counts[3];
}

Range tiles_of_slot(const TileBlock::Counts& counts, int i, int j) {
    const std::int64_t large_h_end = counts[0] + counts[1];
    const std::int64_t large_w_end = large_h_end + counts[2];
    Range range{0, large_w_end + counts[3]};
    if (i == kSlotOfFour) range.end = large_h_end;
    if (j == kSlotOfFour) range = {counts[0], std::min(range.end, large_w_end)};
    return range;
}

}  // namespace dlprim
