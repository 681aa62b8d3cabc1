#include "primitives/reorder/serial_moves.h"

#include <cstring>
#include <memory>

#include "primitives/tensor/partition.h"
#include "rows/row_builder.h"
#include "rows/row_kernel.h"

namespace dlprim {
namespace {

constexpr std::int64_t kFewTiles = 3;  // less of them on each other are one

// Tiles of one size, from a place in a row of src and one in a row of dst on, that follow each
// other along one of these. It is passed as it is: to copy what was just written in parts waits for
// all stores before it, those of tiles.
struct Strip {
    std::int64_t across = 0;
    std::int64_t down = 0;
    std::int64_t src_bytes = kTileSide;
    std::int64_t dst_bytes = kTileSide;
    std::int64_t count = 1;
    bool goes_down = true;
};

void move(const TransposedMatrix& it, const Strip& strip) {
    const std::int64_t unit = it.tile.unit, units = kTileSide / unit;
    const std::int64_t row = strip.down / unit, column = strip.across / unit;
    const bool lists_src = it.src_rows.list != nullptr, lists_dst = it.dst_rows.list != nullptr;
    const bool goes_down = strip.goes_down;
    const std::int64_t list_step = units * std::int64_t{sizeof(std::int64_t)};
    move_kernel({.unit = it.tile.unit,
                 .rounds = it.tile.rounds,
                 .second_is_zero = it.tile.second_is_zero,
                 .lists_src = lists_src,
                 .lists_dst = lists_dst,
                 .reads_ahead = it.tile.reads_ahead,
                 .src_bytes = static_cast<std::uint8_t>(strip.src_bytes),
                 .dst_bytes = strip.dst_bytes})(
        {.src = it.src + strip.across * it.tile.scale() + it.src_rows.offset(row),
         .dst = it.dst + strip.down + it.dst_rows.offset(column),
         .src_row = it.src_rows.stride,
         .dst_row = it.dst_rows.stride,
         .src_rows = lists_src ? it.src_rows.list + row : nullptr,
         .dst_rows = lists_dst ? it.dst_rows.list + column : nullptr,
         .count = strip.count,
         .src_step = goes_down ? it.src_rows.offset(units) : kTileSide * it.tile.scale(),
         .dst_step = goes_down ? kTileSide : it.dst_rows.offset(units),
         .src_rows_step = goes_down ? list_step : 0,
         .dst_rows_step = goes_down ? 0 : list_step});
}

// One side is two or three long and dense. Whole vectors, of which the last ones overlap those
// before.
void move_parts(const TransposedMatrix& it, std::int64_t parts, bool joins) {
    using Way = MoveSpec::Way;
    const std::int64_t unit = it.tile.unit, whole = parts * unit;
    const Way way = parts == 2 ? (joins ? Way::join_two : Way::split_two)
                               : (joins ? Way::join_three : Way::split_three);
    const std::int64_t bytes = joins ? it.src_bytes : it.dst_bytes;
    MoveArgs args{.src = it.src,
                  .dst = it.dst,
                  .src_row = it.src_rows.stride,
                  .dst_row = it.dst_rows.stride,
                  .count = bytes / kTileSide,
                  .src_step = joins ? kTileSide : parts * kTileSide,
                  .dst_step = joins ? parts * kTileSide : kTileSide,
                  .lines = it.count,
                  .src_line = it.src_step,
                  .dst_line = it.dst_step};
    const MoveKernel& kernel = move_kernel({.way = way, .unit = it.tile.unit});
    kernel(args);
    if (bytes % kTileSide == 0) return;
    const std::int64_t last = (bytes - kTileSide) / unit;
    args.src += last * (joins ? unit : whole);
    args.dst += last * (joins ? whole : unit);
    args.count = 1;
    kernel(args);
}

// How many parts are side by side in the rows of one side: two, three, or 0 of another number.
std::int64_t dense_parts(const TransposedMatrix& it, std::int64_t bytes, const RowPlaces& rows,
                         std::int64_t others) {
    const std::int64_t unit = it.tile.unit, parts = bytes / unit;
    const bool is_known = (parts == 3 && unit < 8) || (parts == 2 && unit == 4);
    const bool is_dense = !it.tile.rounds && !it.tile.second_is_zero && bytes == parts * unit &&
                          rows.stride == bytes && others >= kTileSide && others % unit == 0 &&
                          it.src_rows.list == nullptr && it.dst_rows.list == nullptr;
    return is_known && is_dense ? parts : 0;
}

std::shared_ptr<const RowKernel> conversion(DType from, DType to) {
    RowBuilder row;
    row.store(to, row.tensor(from));
    return row_kernel(row.spec());
}

void convert(const RowKernel& kernel, const ConvertedRows& it) {
    if (it.rows == 0 || it.columns == 0) return;
    RowArgs args;
    args.rows = it.rows;
    args.columns = it.columns;
    args.operands[0] = {const_cast<void*>(it.src), it.src_row};
    args.operands[1] = {it.dst, it.dst_row};
    kernel(args);
}

// One matrix, of which no side is parts.
void transpose_tiles(const TransposedMatrix& it) {
    const bool is_short = it.dst_bytes < kFewTiles * kTileSide;
    const Blocks across{it.src_bytes, kTileSide};
    const Blocks down{it.dst_bytes, is_short ? it.dst_bytes : kTileSide};
    const std::int64_t whole_across = it.src_bytes / kTileSide;
    const std::int64_t whole_down = it.dst_bytes / kTileSide;
    // Stores of parts of a vector that lie in two lines take several times as long as whole ones:
    // the last tile overlaps the one before it.
    const bool overlaps = !is_short && it.dst_bytes % kTileSide % it.tile.unit == 0;
    const auto rows_at = [&](std::int64_t index) {
        const Range rows = down.at(index);
        return overlaps && index == whole_down ? Range{rows.end - kTileSide, rows.end} : rows;
    };
    if (it.goes_across || is_short) {
        for (std::int64_t i = 0; i < down.count(); ++i) {
            const Range rows = rows_at(i);
            if (whole_across > 0) {
                move(it, {0, rows.begin, kTileSide, rows.size(), whole_across, false});
            }
            if (whole_across == across.count()) continue;
            const Range columns = across.at(whole_across);
            move(it, {columns.begin, rows.begin, columns.size(), rows.size()});
        }
        return;
    }
    for (std::int64_t i = 0; i < across.count(); ++i) {
        const Range columns = across.at(i);
        move(it, {columns.begin, 0, columns.size(), kTileSide, whole_down});
        if (whole_down == down.count()) continue;
        const Range rows = rows_at(whole_down);
        move(it, {columns.begin, rows.begin, columns.size(), rows.size()});
    }
}

}  // namespace

void transpose(const TransposedMatrix& matrix) {
    TransposedMatrix it = matrix;
    const std::int64_t joined = dense_parts(it, it.dst_bytes, it.dst_rows, it.src_bytes);
    if (joined != 0) return move_parts(it, joined, true);
    const std::int64_t split = dense_parts(it, it.src_bytes, it.src_rows, it.dst_bytes);
    if (split != 0) return move_parts(it, split, false);
    for (std::int64_t i = 0; i < matrix.count; ++i) {
        transpose_tiles(it);
        it.src += matrix.src_step;
        it.dst += matrix.dst_step;
    }
}

void group(const GroupedRows& it) {
    const std::int64_t size = elements_per_word(it.to);
    MoveSpec spec{.way = MoveSpec::Way::group,
                  .unit = static_cast<std::uint8_t>(size_of(it.to)),
                  .rounds = it.from != it.to,
                  .src_bytes = 4,
                  .dst_bytes = it.columns * 4};
    const std::int64_t whole = it.rows / size;
    MoveArgs args{.src = static_cast<const char*>(it.src),
                  .dst = static_cast<char*>(it.dst),
                  .src_row = it.src_row,
                  .count = whole,
                  .src_step = size * it.src_row,
                  .dst_step = it.dst_row};
    if (it.columns == 0) return;
    if (whole > 0) move_kernel(spec)(args);
    if (it.rows % size == 0) return;
    spec.src_bytes = static_cast<std::uint8_t>(it.rows % size * size_of(it.to));
    args.src += whole * args.src_step;
    args.dst += whole * args.dst_step;
    args.count = 1;
    move_kernel(spec)(args);
}

void round_rows(const ConvertedRows& it) {
    static const auto& kernel = *new auto(conversion(DType::f32, DType::bf16));
    convert(*kernel, it);
}

void widen_rows(const ConvertedRows& it) {
    static const auto& kernel = *new auto(conversion(DType::bf16, DType::f32));
    convert(*kernel, it);
}

}  // namespace dlprim
