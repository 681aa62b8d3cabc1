#include "primitives/reorder/reorder.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "primitives/reorder/serial_moves.h"
#include "primitives/tensor/parallel.h"
#include "primitives/tensor/partition.h"

namespace dlprim {
namespace {

std::size_t size(std::int64_t count) { return static_cast<std::size_t>(count); }

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
    std::int64_t count = 1;  // such pieces, along the innermost loop
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

    // How many pieces, of at most so many, differ in no more than where they are.
    std::int64_t alike(std::int64_t most) const {
        const int last = plan_.loop_count - 1;
        if (last < 0 || loop(last).of != Of::none) return 1;
        return std::min(most, loop(last).count - at_[size(last)]);
    }

    // So many pieces on, which are alike.
    void skip(std::int64_t pieces) {
        for (int i = plan_.loop_count; i-- > 0; pieces = 1) {
            if (at_[size(i)] + pieces < loop(i).count) return move(i, pieces);
            move(i, -at_[size(i)]);
        }
    }

private:
    using Of = PieceLoop::Of;

    const PieceLoop& loop(int index) const { return plan_.loops[static_cast<std::size_t>(index)]; }
    std::int64_t place(Of of) const { return places_[static_cast<std::size_t>(of)]; }

    void move(int index, std::int64_t steps) {
        at_[size(index)] += steps;
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

void copy_piece(const ReorderPlan& plan, const Piece& piece) {
    if (plan.from != plan.to) {
        return round_rows({.src = piece.src,
                           .src_row = plan.columns.from,
                           .dst = piece.dst,
                           .dst_row = plan.columns.to,
                           .rows = piece.columns.exists,
                           .columns = piece.rows.exists});
    }
    for (std::int64_t i = 0; i < piece.columns.exists; ++i) {
        std::memcpy(piece.dst + i * plan.columns.to, piece.src + i * plan.columns.from,
                    size(piece.rows.exists * size_of(plan.to)));
    }
}

void group_piece(const ReorderPlan& plan, const Piece& piece) {
    group({.from = plan.from,
           .to = plan.to,
           .src = piece.src,
           .src_row = plan.columns.from,
           .rows = piece.columns.exists,
           .columns = piece.rows.exists,
           .dst = piece.dst,
           .dst_row = plan.columns.to});
}

// Where rows begin that are made of steps, each with taps.
std::vector<std::int64_t> places(std::int64_t steps, std::int64_t step, std::int64_t taps,
                                 std::int64_t tap) {
    std::vector<std::int64_t> made(size(steps * taps));
    auto place = made.begin();
    for (std::int64_t i = 0; i < steps; ++i) {
        for (std::int64_t t = 0; t < taps; ++t) *place++ = i * step + t * tap;
    }
    return made;
}

std::vector<std::int64_t> src_places(const ReorderPlan& plan) {
    const std::int64_t steps = Blocks{plan.rows.cut, plan.rows.from_step}.count();
    if (plan.pairs_channels) {
        return places(steps, plan.rows.from, 2, plan.taps * size_of(plan.from));
    }
    if (plan.taps == 1 || !plan.has_row_taps) return {};
    return places(steps, plan.rows.from, plan.taps, plan.taps_from);
}

std::vector<std::int64_t> dst_places(const ReorderPlan& plan) {
    if (plan.taps == 1 || plan.has_row_taps || plan.pairs_channels) return {};
    const std::int64_t steps = Blocks{plan.columns.cut, plan.columns.to_step}.count();
    return places(steps, plan.columns.to, plan.taps, plan.taps_to);
}

void transpose_piece(const ReorderPlan& plan, const Piece& piece, const RowPlaces& src_rows,
                     const RowPlaces& dst_rows) {
    const std::int64_t from = size_of(plan.from), to = size_of(plan.to), unit = plan.tile.unit;
    const std::int64_t rows = piece.rows.exists * (plan.has_row_taps ? plan.taps : 1);
    // Of a row of src; in units of eight bytes they are words.
    const std::int64_t elements =
        piece.columns.exists * (plan.has_row_taps ? 1 : plan.taps) * (unit == 8 ? 2 : 1);
    TransposedMatrix matrix{
        .tile = plan.tile,
        .src = piece.src,
        .dst = piece.dst,
        .src_rows = src_rows,
        .dst_rows = dst_rows,
        .src_bytes = elements * to,
        .dst_bytes = rows * (plan.pairs_channels ? kWord : std::min(unit, kWord))};
    matrix.goes_across = plan.goes_across;
    matrix.count = piece.count;
    if (plan.loop_count > 0) {
        matrix.src_step = plan.loops[size(plan.loop_count - 1)].from;
        matrix.dst_step = plan.loops[size(plan.loop_count - 1)].to;
    }
    if (!plan.pairs_channels) return transpose(matrix);
    const std::int64_t channel_bytes = plan.taps * from;
    matrix.src_bytes = plan.taps * to;
    for (std::int64_t channel = 0; channel < piece.columns.exists; channel += 2) {
        matrix.tile.second_is_zero = channel + 1 == piece.columns.exists;
        transpose(matrix);
        matrix.src += 2 * channel_bytes;
        matrix.dst += plan.columns.to;
    }
}

template <class Element>
void copy_singly(const char* src, const std::int64_t* from, char* dst, const std::int64_t* to,
                 std::size_t count) {
    constexpr auto kElement = static_cast<std::int64_t>(sizeof(Element));
    auto* const written = reinterpret_cast<Element*>(dst);
    for (std::size_t i = 0; i < count; ++i) {
        std::memcpy(&written[to[i]], src + from[i] * kElement, sizeof(Element));
    }
}

void require_types(DType from, DType to) {
    if (from == to || (from == DType::f32 && to == DType::bf16)) return;
    throw std::invalid_argument("a tensor cannot be reordered from " + std::string(name_of(from)) +
                                " to " + std::string(name_of(to)));
}

}  // namespace

std::pair<bool, std::int64_t> Reorder::Distances::rank() const {
    constexpr std::size_t kShort = 7;
    constexpr std::int64_t kStore = 16;  // loads whose lines are as far apart
    const auto step = [](const std::vector<std::int64_t>& places) {
        return places.size() < 2 ? 0 : std::abs(places[1] - places[0]);
    };
    if (to.size() < kShort) return {true, -static_cast<std::int64_t>(to.size())};
    return {false, step(from) + kStore * step(to)};
}

Reorder::Reorder(const Layout& from, const Layout& to) : plan_(plan_reorder(from, to)) {
    require_types(from.dtype, to.dtype);
    if (plan_.move == Move::transposition) {
        src_rows_ = src_places(plan_);
        dst_rows_ = dst_places(plan_);
    }
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
    // What is moved in one go is a row of the last, and such rows follow each other along the one
    // before it.
    std::stable_sort(distances_.begin(), distances_.end(),
                     [](const Distances& a, const Distances& b) { return a.rank() > b.rank(); });
}

void Reorder::run(const void* src, void* dst) const {
    const auto* const from = static_cast<const char*>(src);
    auto* const to = static_cast<char*>(dst);
    if (plan_.move == Move::single) return run_singly(from, to);
    const auto listed = [](std::int64_t stride, const std::vector<std::int64_t>& list) {
        return RowPlaces{stride, list.empty() ? nullptr : list.data()};
    };
    const RowPlaces src_rows = listed(plan_.rows.from, src_rows_);
    const RowPlaces dst_rows =
        listed(plan_.pairs_channels ? plan_.taps_to : plan_.columns.to, dst_rows_);
    const Blocks tasks{plan_.pieces, plan_.pieces_of_task};
    parallel_for(tasks.count(), [&](std::int64_t task) {
        const Range range = tasks.at(task);
        Pieces pieces(plan_, from, to, range.begin);
        for (std::int64_t i = range.begin, count = 1; i < range.end; pieces.skip(count)) {
            Piece piece = pieces.get();
            const bool is_whole = piece.rows.exists == piece.rows.stored &&
                                  piece.columns.exists == piece.columns.stored;
            const bool is_one = plan_.move == Move::transposition && is_whole;
            piece.count = count = is_one ? pieces.alike(range.end - i) : 1;
            i += count;
            clear_padding(plan_, piece);
            if (piece.rows.exists == 0 || piece.columns.exists == 0) continue;
            switch (plan_.move) {
                case Move::single: break;
                case Move::copy: copy_piece(plan_, piece); break;
                case Move::groups: group_piece(plan_, piece); break;
                case Move::transposition: transpose_piece(plan_, piece, src_rows, dst_rows); break;
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
        switch (element) {
            case 1: copy_singly<std::uint8_t>(src, it.from.data(), dst, it.to.data(), exist); break;
            case 2:
                copy_singly<std::uint16_t>(src, it.from.data(), dst, it.to.data(), exist);
                break;
            default: copy_singly<std::uint32_t>(src, it.from.data(), dst, it.to.data(), exist);
        }
    } else {
        std::array<float, kTogether> values = {};
        std::array<std::uint16_t, kTogether> halves = {};
        for (std::size_t begin = 0; begin < exist; begin += kTogether) {
            const std::size_t count = std::min(kTogether, exist - begin);
            for (std::size_t i = 0; i < count; ++i) {
                const char* const value = src + it.from[begin + i] * size_of(plan_.from);
                std::memcpy(&values[i], value, sizeof(float));
            }
            round_row(values.data(), halves.data(), static_cast<std::int64_t>(count));
            for (std::size_t i = 0; i < count; ++i) std::memcpy(at(begin + i), &halves[i], element);
        }
    }
    for (std::size_t i = exist; i < it.to.size(); ++i) std::memset(at(i), 0, element);
}

void reorder(const Layout& from, const void* src, const Layout& to, void* dst) {
    Reorder(from, to).run(src, dst);
}

}  // namespace dlprim
