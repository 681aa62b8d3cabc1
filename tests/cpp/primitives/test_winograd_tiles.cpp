#include <algorithm>
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

#include "primitives/winograd/winograd_tiles.h"

namespace dlprim {
namespace {

struct Tile {
    std::int64_t place;
    std::int64_t image;
    std::int64_t row;
    std::int64_t column;
    int which;

    friend bool operator==(const Tile&, const Tile&) = default;
};

// The class of the tiles that have this place in a block.
int class_at(const TileBlock& block, std::int64_t place) {
    int which = 0;
    for (std::int64_t end = block.counts()[0]; place >= end;) {
        end += block.counts()[static_cast<std::size_t>(++which)];
    }
    return which;
}

// In `parts` pieces of their lines, one behind the other.
std::vector<Tile> tiles_in(const TileBlock& block, std::int64_t parts = 1) {
    std::vector<Tile> tiles;
    for (std::int64_t part = 0; part < parts; ++part) {
        block.for_each(chunk(block.lines(), parts, part),
                       [&](std::int64_t t, std::int64_t image, std::int64_t row, Range columns) {
                           for (; columns.begin < columns.end; ++columns.begin) {
                               tiles.push_back({t, image, row, columns.begin, class_at(block, t)});
                               ++t;
                           }
                       });
    }
    return tiles;
}

// body(TileGrid, images, rows, columns) for every box of tiles of a few grids.
template <class Body>
void for_boxes(int large, const Body& body) {
    for (const std::int64_t height : {1, 4, 7, 10, 14}) {
        for (const std::int64_t width : {2, 4, 7, 13}) {
            const TileGrid grid{3, axis_tiles(height, large), axis_tiles(width, large)};
            CAPTURE(height);
            CAPTURE(width);
            for (std::int64_t top = 0; top < grid.rows.count(); ++top) {
                for (std::int64_t bottom = top + 1; bottom <= grid.rows.count(); ++bottom) {
                    for (std::int64_t left = 0; left < grid.columns.count(); ++left) {
                        body(grid, Range{1, 3}, Range{top, bottom},
                             Range{left, grid.columns.count()});
                    }
                }
            }
        }
    }
}

TEST_CASE("tiles cover an axis, one behind the other, and are as few as possible") {
    for (const int large : {4, 2}) {
        for (std::int64_t extent = 0; extent <= 100; ++extent) {
            CAPTURE(large);
            CAPTURE(extent);
            const AxisTiles axis = axis_tiles(extent, large);
            CHECK(axis.count() == (extent + large - 1) / large);
            std::int64_t end = 0;
            for (std::int64_t tile = 0; tile < axis.count(); ++tile) {
                CHECK(axis.begin(tile) == end);
                CHECK(end < extent);
                CHECK(axis.size(tile) == (tile < axis.larges ? large : 3));
                end += axis.size(tile);
            }
            CHECK(end >= extent);
            if (large == 2) CHECK(axis.threes == 0);
        }
    }
}

TEST_CASE("of the covers with the fewest tiles the one that computes least is taken") {
    for (std::int64_t extent = 1; extent <= 100; ++extent) {
        CAPTURE(extent);
        const AxisTiles axis = axis_tiles(extent, 4);
        std::int64_t least = 4 * axis.count();
        for (std::int64_t threes = 0; threes <= axis.count(); ++threes) {
            const std::int64_t covered = 4 * axis.count() - threes;
            if (covered >= extent) least = std::min(least, covered);
        }
        CHECK(4 * axis.larges + 3 * axis.threes == least);
    }
    CHECK(axis_tiles(7, 4).larges == 1);
    CHECK(axis_tiles(7, 4).threes == 1);
    CHECK(axis_tiles(14, 4).larges == 2);
    CHECK(axis_tiles(14, 4).threes == 2);
    CHECK(axis_tiles(56, 4).threes == 0);
}

TEST_CASE("places in a block are a permutation, each tile of its box once") {
    for (const int large : {4, 2}) {
        for_boxes(large, [](const TileGrid& grid, Range images, Range rows, Range columns) {
            const TileBlock block(grid, images, rows, columns);
            const std::vector<Tile> tiles = tiles_in(block);
            for (const std::int64_t parts : {2, 3, 7}) CHECK(tiles_in(block, parts) == tiles);
            CHECK(tiles_of(block.counts()) == images.size() * rows.size() * columns.size());
            CHECK(static_cast<std::int64_t>(tiles.size()) == tiles_of(block.counts()));
            std::vector<int> visits(tiles.size());
            for (std::size_t i = 0; i < tiles.size(); ++i) {
                const Tile& tile = tiles[i];
                CHECK(tile.place == static_cast<std::int64_t>(i));
                CHECK(TileBlock::is_large_h(tile.which) == (tile.row < grid.rows.larges));
                CHECK(TileBlock::is_large_w(tile.which) == (tile.column < grid.columns.larges));
                const std::int64_t image = tile.image - images.begin;
                const std::int64_t row = tile.row - rows.begin;
                const std::int64_t column = tile.column - columns.begin;
                ++visits.at(static_cast<std::size_t>((image * rows.size() + row) * columns.size() +
                                                     column));
            }
            CHECK(std::all_of(visits.begin(), visits.end(), [](int n) { return n == 1; }));
        });
    }
}

TEST_CASE("the tiles of a slot stand side by side") {
    for_boxes(4, [](const TileGrid& grid, Range images, Range rows, Range columns) {
        const TileBlock block(grid, images, rows, columns);
        const std::vector<Tile> tiles = tiles_in(block);
        for (int i = 0; i < 6; ++i) {
            for (int j = 0; j < 6; ++j) {
                const Range range = tiles_of_slot(block.counts(), i, j);
                for (const Tile& tile : tiles) {
                    const bool has_row = i != kSlotOfFour || TileBlock::is_large_h(tile.which);
                    const bool has_column = j != kSlotOfFour || TileBlock::is_large_w(tile.which);
                    const bool inside = tile.place >= range.begin && tile.place < range.end;
                    CHECK(inside == (has_row && has_column));
                }
            }
        }
    });
}

TEST_CASE("a grid without images has tiles in no block") {
    const TileGrid grid{0, axis_tiles(7, 4), axis_tiles(9, 4)};
    const TileBlock block(grid, {0, 0}, {0, 2}, {0, 3});
    CHECK(tiles_of(block.counts()) == 0);
    CHECK(tiles_in(block).empty());
    CHECK(block.lines() == 0);
    CHECK(grid.slots() == 36);
    CHECK(TileGrid{1, axis_tiles(7, 2), axis_tiles(9, 2)}.slots() == 16);
}

}  // namespace
}  // namespace dlprim
