// How one layout becomes another: the indices of both, refined to joint loops, of which two or
// three are the axes of a piece that one of a few serial moves takes, and the others only say where
// a piece begins. A value without memory of its own, so that planning costs next to nothing.
#pragma once

#include <array>
#include <cstdint>

#include "moves/move_kernel.h"
#include "primitives/tensor/layout.h"

namespace dlprim {

enum class Move : std::uint8_t {
    single,         // element by element, for what nothing else fits
    copy,           // rows that are contiguous on both sides
    groups,         // rows to groups of neighbouring rows (VNNI form)
    transposition,  // by ReorderPlan::tile
};

// One side of a piece. Steps are groups of indices, where some share a word, and strides are bytes
// from step to step.
struct PieceAxis {
    std::int64_t extent = 1;  // indices that exist
    std::int64_t stored = 1;  // in `to`, padding included
    std::int64_t block = 1;   // indices of a loop's step, where there is a loop over blocks
    std::int64_t cut = 1;     // most indices of a piece
    std::int64_t from = 0;
    std::int64_t from_step = 1;
    std::int64_t to = 0;
    std::int64_t to_step = 1;
    bool is_blocked = false;
};

// What moves from piece to piece; strides in bytes.
struct PieceLoop {
    enum class Of : std::uint8_t { none, row_blocks, column_blocks, row_cuts, column_cuts };

    std::int64_t count = 1;
    std::int64_t from = 0;
    std::int64_t to = 0;
    Of of = Of::none;
};

struct ReorderPlan {
    static constexpr int kLoops = 16;

    Move move = Move::single;
    MoveSpec tile = {};
    DType from = DType::f32;
    DType to = DType::f32;
    PieceAxis rows = {};     // contiguous in `to`, or in groups of columns
    PieceAxis columns = {};  // contiguous in `from` where the move is a transposition
    // Indices inside those of an axis: the taps of a filter.
    std::int64_t taps = 1;
    std::int64_t taps_from = 0;
    std::int64_t taps_to = 0;
    bool has_row_taps = false;  // else they are the columns'
    // Neighbouring channels share a word. Elsewhere it is taps of a column that are neighbours.
    bool pairs_channels = false;
    bool goes_across = false;                  // see TransposedMatrix
    std::array<PieceLoop, kLoops> loops = {};  // from the outside in
    int loop_count = 0;
    std::int64_t pieces = 1;
    std::int64_t pieces_of_task = 1;
};

ReorderPlan plan_reorder(const Layout& from, const Layout& to);

}  // namespace dlprim
