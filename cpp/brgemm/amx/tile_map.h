// Which AMX tile register holds what while a block of C is computed, and the configuration that
// gives the registers their shapes. Eight tiles are another register file than the vectors', but
// no other design: a plan's Tile of up to 80 rows and four vectors is cut into tiles of 16 rows
// and 16 columns, and everything that counts tiles is here, as registers.h counts vectors.
//
// A product of two tiles takes 16 cycles, 9 at least, however little of its depth is used, and a
// load of a tile from the L1 cache 8: as many loads as products are hidden behind them.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "brgemm/registers.h"
#include "brgemm/spec.h"

namespace dlprim {

inline constexpr int kTileRegisters = 8;
inline constexpr int kMostTilesAcross = 5;  // of rows or of columns of a block
inline constexpr int kMostTileRows = 16;
inline constexpr int kTileRowBytes = 64;
inline constexpr int kTileBytes = kMostTileRows * kTileRowBytes;

// Words of A, rows of B, in a step along k: equal steps, the last one may lack some.
int tile_depth(const BrgemmSpec& spec);

// Tiles follow one another in this order. Of A or B, whichever has fewer tiles, all of a step are
// held; those of the other one take turns in what is left, but for the last one, whose shape may be
// another and which has a register of its own.
struct TileMap {
    int row_tiles = 0;
    int column_tiles = 0;
    int b_sums = 0;  // one row: column sums of B, for the zero point of A
    int a_sums = 0;  // row sums of A, for the zero point of B
    int ones_a = 0;  // the other factors of the sums
    int ones_b = 0;
    int a = 0;
    int b = 0;
    int a_turns = 0;
    int b_turns = 0;
    int total = 0;

    int c(int row_tile, int column_tile) const { return row_tile * column_tiles + column_tile; }
    int a_at(int row_tile) const { return a + turn(row_tile, row_tiles, a_turns); }
    int b_at(int column_tile) const { return b + turn(column_tile, column_tiles, b_turns); }
    bool holds_a() const { return row_tiles <= column_tiles; }

private:
    static int turn(int index, int count, int turns) {
        return index == count - 1 ? turns - 1 : index % std::max(turns - 1, 1);
    }
};

// `total` exceeds kTileRegisters where the tile does not fit.
TileMap tile_map(const BrgemmSpec& spec, const Tile& tile);

// The rows of a Tile in a tile register, and those before them: as many in each but the last.
struct TileRows {
    int first;
    int count;
};
TileRows tile_rows(const Tile& tile, int row_tile);

struct TileConfiguration {
    std::array<std::uint8_t, 64> bytes = {};  // as LDTILECFG reads them
    std::uint64_t key = 0;                    // the same for the same bytes; never 0
};

// `last_columns` are those of the last column of tiles.
TileConfiguration tile_configuration(const BrgemmSpec& spec, const Tile& tile, int last_columns);

// Cycles of a word of k, what they wait for, and of all that happens once for a block.
struct TileCost {
    double multiplies;
    double from_l2;
    double shuffles;
    double block;
};
TileCost tile_cost(const BrgemmSpec& spec, const Tile& tile);

inline constexpr double kCyclesToConfigure = 160;

}  // namespace dlprim
