#include "primitives/reorder/reorder.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "jit/isa.h"
#include "primitives/reorder/pack_rows.h"
#include "primitives/tensor/parallel.h"
#include "primitives/tensor/partition.h"

namespace dlprim {
namespace {

// What of an axis belongs to a piece.
struct Part {
    std::int64_t exists = 0;
    std::int64_t stored = 0;
};

struct Piece {
    const char* src;
    char* dst;
    Part rows;
    Part columns;
};

Part part_of(const PieceAxis& axis, std::int64_t block, std::int64_t cut) {
    const std::int64_t first = block * axis.block;
    const std::int64_t begin = first + cut * axis.cut;
    const std::int64_t end = std::min({begin + axis.cut, first + axis.block, axis.stored});
    return {std::clamp<std::int64_t>(axis.extent - begin, 0, end - begin), end - begin};
}

// One piece after the other: counting up is cheaper than dividing an index for every one.
class Pieces {
public:
    Pieces(const ReorderPlan& plan, const char* src, char* dst, std::int64_t index)
        : plan_(plan), src_(src), dst_(dst) {
        for (int i = plan.loop_count; i-- > 0;) {
            const std::int64_t count = loop(i).count;
            move(i, index % count);
            index /= count;
        }
    }

    Piece get() const {
        return {src_, dst_, part_of(plan_.rows, place(Of::row_blocks), place(Of::row_cuts)),
                part_of(plan_.columns, place(Of::column_blocks), place(Of::column_cuts))};
    }

    void next() {
        for (int i = plan_.loop_count; i-- > 0;) {
            if (at_[static_cast<std::size_t>(i)] + 1 < loop(i).count) return move(i, 1);
            move(i, 1 - loop(i).count);
        }
    }

private:
    using Of = PieceLoop::Of;

    const PieceLoop& loop(int index) const { return plan_.loops[static_cast<std::size_t>(index)]; }
    std::int64_t place(Of of) const { return places_[static_cast<std::size_t>(of)]; }

    void move(int index, std::int64_t steps) {
        at_[static_cast<std::size_t>(index)] += steps;
        places_[static_cast<std::size_t>(loop(index).of)] += steps;
        src_ += steps * loop(index).from;
        dst_ += steps * loop(index).to;
    }

    const ReorderPlan& plan_;
    const char* src_;
    char* dst_;
    std::array<std::int64_t, ReorderPlan::kLoops> at_ = {};
    std::array<std::int64_t, 5> places_ = {};  // by what a loop is of
};

std::size_t size(std::int64_t bytes) { return static_cast<std::size_t>(bytes); }

// Zeros where no element is: behind the last row of every column, and behind the last column.
void clear_padding(const ReorderPlan& plan, const Piece& piece) {
    const PieceAxis& columns = plan.columns;
    if (piece.rows.exists == piece.rows.stored && piece.columns.exists == piece.columns.stored) {
        return;
    }
    const std::int64_t row_bytes =
        columns.to_step * size_of(plan.to) * (plan.has_row_taps ? plan.taps : 1);
    const std::int64_t taps = plan.has_row_taps ? 1 : plan.taps;
    const std::int64_t all = Blocks{piece.columns.stored, columns.to_step}.count();
    const std::int64_t there = Blocks{piece.columns.exists, columns.to_step}.count();
    for (std::int64_t i = 0; i < all * taps; ++i) {
        const std::int64_t first = i / taps < there ? piece.rows.exists : 0;
        std::memset(piece.dst + i / taps * columns.to + i % taps * plan.taps_to + first * row_bytes,
                    0, size((piece.rows.stored - first) * row_bytes));
    }
}

void copy(const ReorderPlan& plan, const Piece& piece, const RowFunctions& functions) {
    for (std::int64_t i = 0; i < piece.columns.exists; ++i) {
        const char* const src = piece.src + i * plan.columns.from;
        char* const dst = piece.dst + i * plan.columns.to;
        if (plan.from == plan.to) {
            std::memcpy(dst, src, size(piece.rows.exists * size_of(plan.to)));
        } else {
            functions.round(reinterpret_cast<const float*>(src),
                            reinterpret_cast<std::uint16_t*>(dst), piece.rows.exists);
        }
    }
}

void group(const ReorderPlan& plan, const Piece& piece, const RowFunctions& functions) {
    functions.pack({.from = plan.from,
                    .to = plan.to,
                    .k = piece.columns.exists,
                    .n = piece.rows.exists,
                    .src = piece.src,
                    .ld_src = plan.columns.from / size_of(plan.from),
                    .dst = piece.dst,
                    .ld_dst = plan.columns.to / (plan.columns.to_step * size_of(plan.to))},
                   {0, piece.columns.exists});
}

void transpose(const ReorderPlan& plan, const Piece& piece, TransposeFunction function) {
    Transposition matrix{.src = piece.src,
                         .src_rows = {.near = plan.rows.from},
                         .rows = piece.rows.exists,
                         .columns = piece.columns.exists,
                         .dst = piece.dst,
                         .dst_rows = {.near = plan.columns.to},
                         .element = size_of(plan.from),
                         .taps = plan.taps,
                         .is_read_ahead = plan.is_read_ahead};
    if (plan.has_row_taps) {
        matrix.rows *= plan.taps;
        matrix.src_rows = {plan.taps_from, plan.taps, plan.rows.from};
    } else if (plan.taps > 1) {
        matrix.columns *= plan.taps;
        matrix.dst_rows = {plan.taps_to, plan.taps, plan.columns.to};
    }
    function(matrix);
}

void require_types(DType from, DType to) {
    if (from == to || (from == DType::f32 && to == DType::bf16)) return;
    throw std::invalid_argument("a tensor cannot be reordered from " + std::string(name_of(from)) +
                                " to " + std::string(name_of(to)));
}

}  // namespace

Reorder::Reorder(const Layout& from, const Layout& to) : plan_(plan_reorder(from, to)) {
    require_types(from.dtype, to.dtype);
    if (plan_.move != Move::single) return;
    for (const LayoutDimension& dimension : to.dimensions) {
        Distances& distances = distances_.emplace_back();
        for (std::int64_t i = 0; i < dimension.extent; ++i) {
            distances.from.push_back(from.dimension(dimension.letter).offset(i));
        }
        for (std::int64_t i = 0; i < dimension.padded(); ++i) {
            distances.to.push_back(dimension.offset(i));
        }
    }
}

void Reorder::run(const void* src, void* dst) const {
    const auto* const from = static_cast<const char*>(src);
    auto* const to = static_cast<char*>(dst);
    if (plan_.move == Move::single) return run_singly(from, to);
    const RowFunctions functions = row_functions(usable_isa());
    const TransposeFunction function =
        plan_.move == Move::transposition
            ? transpose_function(usable_isa(), plan_.way, size_of(plan_.from))
            : nullptr;
    const Blocks tasks{plan_.pieces, plan_.pieces_of_task};
    parallel_for(tasks.count(), [&](std::int64_t task) {
        const Range range = tasks.at(task);
        Pieces pieces(plan_, from, to, range.begin);
        for (std::int64_t i = range.begin; i < range.end; ++i, pieces.next()) {
            const Piece piece = pieces.get();
            clear_padding(plan_, piece);
            if (piece.rows.exists == 0 || piece.columns.exists == 0) continue;
            switch (plan_.move) {
                case Move::single: break;
                case Move::copy: copy(plan_, piece, functions); break;
                case Move::groups: group(plan_, piece, functions); break;
                case Move::transposition: transpose(plan_, piece, function); break;
            }
        }
    });
}

void Reorder::run_singly(const char* src, char* dst) const {
    if (distances_.empty()) {
        std::memcpy(dst, src, size(size_of(plan_.to)));
        return;
    }
    const Distances& last = distances_.back();
    std::int64_t rows = 1;
    for (const Distances& it : distances_) rows *= static_cast<std::int64_t>(it.to.size());
    if (rows == 0) return;
    rows /= static_cast<std::int64_t>(last.to.size());
    parallel_for(rows, [&](std::int64_t row) {
        const char* from = src;
        char* to = dst;
        bool exists = true;
        for (std::size_t i = distances_.size() - 1; i-- > 0;) {
            const Distances& it = distances_[i];
            const auto index = size(row % static_cast<std::int64_t>(it.to.size()));
            row /= static_cast<std::int64_t>(it.to.size());
            exists = exists && index < it.from.size();
            if (exists) from += it.from[index] * size_of(plan_.from);
            to += it.to[index] * size_of(plan_.to);
        }
        move_singly(last, exists ? from : nullptr, to);
    });
}

// `src` is null in padding.
void Reorder::move_singly(const Distances& it, const char* src, char* dst) const {
    constexpr std::size_t kTogether = 64;
    const std::size_t element = size(size_of(plan_.to));
    const std::size_t exist = src == nullptr ? 0 : it.from.size();
    const auto at = [&](std::size_t i) { return dst + it.to[i] * size_of(plan_.to); };
    if (plan_.from == plan_.to) {
        for (std::size_t i = 0; i < exist; ++i) {
            std::memcpy(at(i), src + it.from[i] * size_of(plan_.from), element);
        }
    } else {
        const auto round = row_functions(usable_isa()).round;
        std::array<float, kTogether> values = {};
        std::array<std::uint16_t, kTogether> halves = {};
        for (std::size_t begin = 0; begin < exist; begin += kTogether) {
            const std::size_t count = std::min(kTogether, exist - begin);
            for (std::size_t i = 0; i < count; ++i) {
                values[i] = reinterpret_cast<const float*>(src)[it.from[begin + i]];
            }
            round(values.data(), halves.data(), static_cast<std::int64_t>(count));
            for (std::size_t i = 0; i < count; ++i) std::memcpy(at(begin + i), &halves[i], element);
        }
    }
    for (std::size_t i = exist; i < it.to.size(); ++i) std::memset(at(i), 0, element);
}

void reorder(const Layout& from, const void* src, const Layout& to, void* dst) {
    Reorder(from, to).run(src, dst);
}

}  // namespace dlprim
