// How Winograd convolution covers an image with tiles, as arithmetic. Along an axis there are as
// few tiles as possible, of 4 results, and of 3 where that saves work (7 = 4 + 3). Tiles of a block
// are sorted so that for every slot those that have it stand side by side: tiles of 3 lack the
// slot of the point -b.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include "primitives/tensor/partition.h"

namespace dlprim {

// Slot of the point -b, which tiles of 3 lack.
inline constexpr int kSlotOfFour = 4;

struct AxisTiles {
    int large = 4;  // 4, or 2: tiles of 2 are alone
    std::int64_t larges = 0;
    std::int64_t threes = 0;  // behind the large ones

    std::int64_t count() const { return larges + threes; }
    int size(std::int64_t tile) const { return tile < larges ? large : 3; }
    std::int64_t begin(std::int64_t tile) const {
        return tile < larges ? tile * large : larges * large + (tile - larges) * 3;
    }
};

// `large` is 4 or 2.
AxisTiles axis_tiles(std::int64_t extent, int large);

// The part of `count` pixels from `first` on that lies in [0, extent), counted from `first`.
Range existing(std::int64_t first, std::int64_t count, std::int64_t extent);

// Tiles of an image and of a whole minibatch.
struct TileGrid {
    std::int64_t images = 0;
    AxisTiles rows;
    AxisTiles columns;

    int slots_h() const { return rows.large == 2 ? 4 : 6; }
    int slots_w() const { return columns.large == 2 ? 4 : 6; }
    int slots() const { return slots_h() * slots_w(); }
    std::int64_t count() const { return images * rows.count() * columns.count(); }
};

// A box of tiles, sorted: large ones along both axes are in the middle of those that are large
// along either.
class TileBlock {
public:
    static constexpr int kClasses = 4;
    using Counts = std::array<std::int64_t, kClasses>;

    TileBlock(const TileGrid& grid, Range images, Range rows, Range columns);

    const Counts& counts() const { return counts_; }

    // Whether tiles of a class are large along an axis.
    static bool is_large_h(int which) { return which < 2; }
    static bool is_large_w(int which) { return which == 1 || which == 2; }

    // Rows of tiles of one class and image.
    std::int64_t lines() const {
        return std::accumulate(lines_.begin(), lines_.end(), std::int64_t{0});
    }
    // The lines in pieces, so many that of as many blocks of channels threads have equal shares.
    Blocks pieces(std::int64_t channel_blocks, int threads) const;
    // Calls visit(t, image, row, columns) for every one of these lines; t is the place of its first
    // tile in the block.
    template <class Visit>
    void for_each(Range lines, const Visit& visit) const;

private:
    Range images_;
    std::array<Range, kClasses> rows_ = {};
    std::array<Range, kClasses> columns_ = {};
    Counts lines_ = {};
    Counts counts_ = {};
};

std::int64_t tiles_of(const TileBlock::Counts& counts);

// What blocks a nest makes, for whoever prepares for all of them.
struct TileBlockKinds {
    std::vector<TileBlock::Counts> kinds = {};  // each once
    std::int64_t most_tiles = 0;                // of a block
    std::int64_t blocks = 0;

    void add(const TileBlock& tiles);
};

// Which tiles of a block of these counts take part in slot (i, j).
Range tiles_of_slot(const TileBlock::Counts& counts, int i, int j);

template <class Visit>
void TileBlock::for_each(Range lines, const Visit& visit) const {
    std::int64_t line = 0, place = 0;
    for (std::size_t which = 0; which < kClasses; ++which) {
        const Range rows = rows_[which], columns = columns_[which];
        const std::int64_t end = std::min(lines.end - line, lines_[which]);
        for (std::int64_t i = std::max<std::int64_t>(lines.begin - line, 0); i < end; ++i) {
            visit(place + i * columns.size(), images_.begin + i / rows.size(),
                  rows.begin + i % rows.size(), columns);
        }
        line += lines_[which];
        place += counts_[which];
    }
}

}  // namespace dlprim
