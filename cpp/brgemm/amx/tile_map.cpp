#include "brgemm/amx/tile_map.h"

#include <algorithm>

#include "brgemm/multiply.h"

namespace dlprim {
namespace {

// Of a product of tiles, by the rows of A: measured on a Granite Rapids core.
constexpr double kLeastCycles = 9.2;
constexpr double kCyclesBeforeRows = 4.5;
constexpr double kCyclesPerRow = 0.72;
constexpr double kBytesFromL2PerCycle = 46;
constexpr double kCyclesToTranspose = 66;
// To drain the products of a block and to bring a vector of it to C.
constexpr double kCyclesPerBlock = 60;
constexpr double kCyclesPerVector = 2;

double product_cycles(int rows) {
    return std::max(kLeastCycles, kCyclesBeforeRows + kCyclesPerRow * rows);
}

void set_shape(TileConfiguration& configuration, int tile, int rows, int row_bytes) {
    constexpr std::size_t kRowBytesAt = 16;
    constexpr std::size_t kRowsAt = 48;
    const auto index = static_cast<std::size_t>(tile);
    configuration.bytes[kRowBytesAt + 2 * index] = static_cast<std::uint8_t>(row_bytes);
    configuration.bytes[kRowsAt + index] = static_cast<std::uint8_t>(rows);
}

}  // namespace

int tile_depth(const BrgemmSpec& spec) {
    const std::int64_t words = spec.words();
    const std::int64_t steps = (words + kMostTileRows - 1) / kMostTileRows;
    return static_cast<int>((words + steps - 1) / steps);
}

TileMap tile_map(const BrgemmSpec& spec, const Tile& tile) {
    const bool b_sums = spec.zero_point_a;
    const bool a_sums = spec.zero_point_b;
    TileMap map;
    map.row_tiles = (tile.rows + kMostTileRows - 1) / kMostTileRows;
    map.column_tiles = tile.vectors;
    map.b_sums = map.row_tiles * map.column_tiles;
    map.a_sums = map.b_sums + (b_sums ? map.column_tiles : 0);
    map.ones_a = map.a_sums + (a_sums ? map.row_tiles : 0);
    map.ones_b = map.ones_a + (b_sums ? 1 : 0);
    map.a = map.ones_b + (a_sums ? 1 : 0);
    const int held = std::min(map.row_tiles, map.column_tiles);
    const int others = std::max(map.row_tiles, map.column_tiles);
    const int turns = std::clamp(kTileRegisters - map.a - held, std::min(2, others), others);
    map.a_turns = map.holds_a() ? held : turns;
    map.b_turns = map.holds_a() ? turns : held;
    map.b = map.a + map.a_turns;
    map.total = map.b + map.b_turns;
    return map;
}

TileRows tile_rows(const Tile& tile, int row_tile) {
    const int tiles = (tile.rows + kMostTileRows - 1) / kMostTileRows;
    const int rows = (tile.rows + tiles - 1) / tiles;
    const int first = row_tile * rows;
    return {first, std::min(rows, tile.rows - first)};
}

TileConfiguration tile_configuration(const BrgemmSpec& spec, const Tile& tile, int last_columns) {
    const TileMap map = tile_map(spec, tile);
    const int depth = tile_depth(spec);
    TileConfiguration it;
    it.bytes[0] = 1;  // the palette of eight tiles
    it.key = 1;
    const auto describe = [&](int number) {
        it.key = it.key << 5 | static_cast<std::uint64_t>(number);
    };
    const auto column_bytes = [&](int s) {
        return kWordBytes * (s + 1 < map.column_tiles ? kMostTileRows : last_columns);
    };
    for (int r = 0; r < map.row_tiles; ++r) {
        const int rows = tile_rows(tile, r).count;
        describe(rows);
        for (int s = 0; s < map.column_tiles; ++s) {
            set_shape(it, map.c(r, s), rows, column_bytes(s));
        }
        if (spec.zero_point_b) set_shape(it, map.a_sums + r, rows, kTileRowBytes);
        set_shape(it, map.a_at(r), rows, depth * kWordBytes);
    }
    for (int s = 0; s < map.column_tiles; ++s) {
        if (spec.zero_point_a) set_shape(it, map.b_sums + s, 1, column_bytes(s));
        set_shape(it, map.b_at(s), depth, column_bytes(s));
    }
    if (spec.zero_point_a) set_shape(it, map.ones_a, 1, depth * kWordBytes);
    if (spec.zero_point_b) set_shape(it, map.ones_b, depth, kTileRowBytes);
    describe(map.column_tiles);
    describe(last_columns);
    describe(depth);
    describe((spec.zero_point_a ? 1 : 0) + (spec.zero_point_b ? 2 : 0));
    return it;
}

TileCost tile_cost(const BrgemmSpec& spec, const Tile& tile) {
    const TileMap map = tile_map(spec, tile);
    const int depth = tile_depth(spec);
    const int columns = map.column_tiles + (spec.zero_point_b ? 1 : 0);
    double products = spec.zero_point_a ? kLeastCycles * map.column_tiles : 0;
    for (int r = 0; r < map.row_tiles; ++r) {
        products += columns * product_cycles(tile_rows(tile, r).count);
    }
    const double rows_loaded = tile.rows + static_cast<double>(map.column_tiles * depth);
    return {.multiplies = products / depth,
            .from_l2 = rows_loaded * kTileRowBytes / kBytesFromL2PerCycle / depth,
            .shuffles = spec.trans_a ? kCyclesToTranspose * map.row_tiles / depth : 0,
            .block = kCyclesPerBlock + kCyclesPerVector * tile.rows * tile.vectors};
}

}  // namespace dlprim
