#include "primitives/reorder/reorder_plan.h"

#include <algorithm>

#include "jit/isa.h"
#include "jit/machine.h"
#include "primitives/reorder/joint_digits.h"
#include "primitives/tensor/partition.h"

namespace dlprim {
namespace {

// What a task moves: long enough to hide the cost of starting it (some 5 us for a team of threads),
// short enough to stay in the L2 cache and to give every thread some.
constexpr std::int64_t kTaskBytes = 128 * 1024;
// Memory is fast where it is written in order: blocks by pieces of whole rows, plain storage that
// is written in short runs by as few rows as make a cache line of blocks.
constexpr std::int64_t kWholeRows = 64;
constexpr std::int64_t kFewRows = 16;
// Pieces that are fewer are too few for all threads, and small enough for any order.
constexpr std::int64_t kFewPieces = 8;
// Cuts are multiples of this: a cache line in any type, and of any group.
constexpr std::int64_t kCutStep = 64;

using Of = PieceLoop::Of;

class Planner {
public:
    Planner(const Layout& from, const Layout& to)
        : it_(joint_dimensions(from, to)),
          from_bytes_(size_of(from.dtype)),
          to_bytes_(size_of(to.dtype)),
          converts_(from.dtype != to.dtype),
          // The storage with fewer levels is called plain: it is the one in memory, and the order
          // of pieces is its own.
          plain_(levels_of(to) - levels_of(from)) {
        plan_.from = from.dtype;
        plan_.to = to.dtype;
        plan_.tile.rounds = converts_;
    }

    ReorderPlan plan() {
        if (!it_.fits || !find_move() || !add_loops() || !cut()) {
            return {.from = plan_.from, .to = plan_.to};
        }
        sort_loops();
        plan_.pieces = blocks();
        const auto bytes = static_cast<double>(plan_.pieces * plan_.rows.cut * plan_.columns.cut *
                                               plan_.taps * from_bytes_);
        plan_.goes_across = is_plain_from_ && bytes > this_machine().l2;
        return plan_;
    }

private:
    static constexpr int kNone = -1;

    JointDimension& dimension(int index) { return it_.all[static_cast<std::size_t>(index)]; }
    const JointDigit& digit(int of, int index = 0) {
        return dimension(of).digits[static_cast<std::size_t>(index)];
    }
    PieceLoop& loop(int index) { return plan_.loops[static_cast<std::size_t>(index)]; }

    template <class Test>
    int find(const Test& test) {
        for (int i = 0; i < it_.count; ++i) {
            if (test(i)) return i;
        }
        return kNone;
    }

    bool find_move() {
        const int inner_to = find([&](int i) { return digit(i).to == 1; });
        const int inner_from =
            find([&](int i) { return digit(i).from == 1 && dimension(i).extent > 1; });
        if (inner_to == kNone) return it_.count == 0 && find_copy(kNone);
        const std::int64_t group = kWord / to_bytes_;
        const int in_groups = find([&](int i) { return i != inner_to && digit(i).to == group; });
        if (group > 1 && digit(inner_to).size == group && in_groups != kNone) {
            return find_groups(in_groups, inner_to, inner_from);
        }
        if (inner_from == inner_to) return find_copy(inner_to);
        return inner_from != kNone && find_transposition(inner_to, inner_from);
    }

    // An axis of as many digits, from the inside on.
    void set_rows(int index, int digits = 1) {
        row_ = index;
        plan_.rows = axis_of(index, digits);
    }
    void set_columns(int index, int digits = 1) {
        column_ = index;
        plan_.columns = axis_of(index, digits);
    }
    PieceAxis axis_of(int index, int digits) {
        const JointDimension& it = dimension(index);
        const std::int64_t block = it.below(digits);
        used_[static_cast<std::size_t>(index)] = digits;
        return {.extent = it.extent,
                .stored = it.stored,
                .block = digits < it.count ? block : std::max(it.stored, it.extent),
                .from = digit(index).from * from_bytes_,
                .to = digit(index).to * to_bytes_,
                .is_blocked = digits < it.count};
    }

    // Rows as they are. Any other dimension gives a second axis, the one whose rows are closest.
    bool find_copy(int row) {
        plan_.move = Move::copy;
        if (row == kNone) return true;
        set_rows(row);
        int next = kNone;
        for (int i = 0; i < it_.count; ++i) {
            if (i == row || dimension(i).count > 1) continue;
            if (next == kNone || digit(i).to < digit(next).to) next = i;
        }
        if (next != kNone) set_columns(next);
        return true;
    }

    // `group` is the dimension whose neighbours share a word.
    bool find_groups(int row, int group, int inner_from) {
        const int digits = std::min(dimension(group).count, 2);
        const std::int64_t size = digit(group).size;
        const bool has_more = digits == 2;
        const std::int64_t from = digit(group).from;
        if (has_more && digit(group, 1).to * to_bytes_ % kWord != 0) return false;
        const bool from_pairs = !converts_ && size == 2 && to_bytes_ == 2 && from == 2 &&
                                digit(row).from == 1 && digit(row).size == 2;
        if (from_pairs) return find_pairs(row, group);
        if (has_more && digit(group, 1).from != size * from) return false;
        set_rows(row);
        set_columns(group, digits);
        plan_.columns.to_step = size;
        plan_.columns.to = has_more ? digit(group, 1).to * to_bytes_ : 0;
        if (inner_from == row) {
            plan_.move = Move::groups;
            return true;
        }
        plan_.move = Move::transposition;
        if (inner_from == group || inner_from == kNone) return from == 1;
        plan_.tile.unit = 2;
        plan_.pairs_channels = true;
        return size == 2 && take_taps(inner_from, from, false);
    }

    // Groups of two on both sides.
    bool find_pairs(int row, int column) {
        const auto follows = [&](int index, std::int64_t JointDigit::* stride) {
            return dimension(index).count == 1 || digit(index, 1).*stride == 4;
        };
        if (!follows(row, &JointDigit::to) || !follows(column, &JointDigit::from)) return false;
        const int row_digits = std::min(dimension(row).count, 2);
        const int column_digits = std::min(dimension(column).count, 2);
        set_rows(row, row_digits);
        plan_.rows.from_step = 2;
        plan_.rows.from = row_digits == 2 ? digit(row, 1).from * from_bytes_ : 0;
        set_columns(column, column_digits);
        plan_.columns.to_step = 2;
        plan_.columns.to = column_digits == 2 ? digit(column, 1).to * to_bytes_ : 0;
        plan_.move = Move::transposition;
        plan_.tile.unit = 8;
        return true;
    }

    bool find_transposition(int inner_to, int inner_from) {
        if (to_bytes_ == 1 && usable_isa() == Isa::scalar) return false;  // whose tiles are slow
        plan_.move = Move::transposition;
        plan_.tile.unit = static_cast<std::uint8_t>(to_bytes_);
        // The channels of a filter go on where its taps end, which are the shorter of both.
        const bool has_row_taps = dimension(inner_to).extent < dimension(inner_from).extent;
        const int taps = has_row_taps ? inner_to : inner_from;
        const std::int64_t count = dimension(taps).extent;
        const int channels = find([&](int i) {
            const std::int64_t stride = has_row_taps ? digit(i).to : digit(i).from;
            return i != inner_from && i != inner_to && stride == count;
        });
        if (channels != kNone && dimension(taps).count == 1 && dimension(taps).is_dense()) {
            set_rows(has_row_taps ? channels : inner_to);
            set_columns(has_row_taps ? inner_from : channels);
            return take_taps(taps, count, has_row_taps);
        }
        set_rows(inner_to);
        set_columns(inner_from);
        return true;
    }

    bool take_taps(int index, std::int64_t count, bool of_rows) {
        const JointDimension& it = dimension(index);
        if (it.count != 1 || !it.is_dense() || it.extent != count) return false;
        used_[static_cast<std::size_t>(index)] = 1;
        plan_.taps = count;
        plan_.taps_from = digit(index).from * from_bytes_;
        plan_.taps_to = digit(index).to * to_bytes_;
        plan_.has_row_taps = of_rows;
        return true;
    }

    bool add_loop(std::int64_t count, std::int64_t from, std::int64_t to, Of of) {
        if (plan_.loop_count == ReorderPlan::kLoops) return false;
        loop(plan_.loop_count++) = {count, from, to, of};
        return true;
    }

    // What no axis takes. Blocks of an axis may be ragged where one loop counts them, all else must
    // be whole.
    bool add_loops() {
        for (int i = 0; i < it_.count; ++i) {
            const JointDimension& it = dimension(i);
            const int used = used_[static_cast<std::size_t>(i)];
            const bool is_axis = i == row_ || i == column_;
            const bool counts_blocks = is_axis && it.count == used + 1;
            if (!it.is_dense() && !is_axis) return false;
            if (is_axis && it.count > used && !counts_blocks) {
                if (!it.is_dense()) return false;
                PieceAxis& axis = i == row_ ? plan_.rows : plan_.columns;
                axis.extent = axis.stored = axis.block;
            }
            const Of of = !counts_blocks ? Of::none
                          : i == row_    ? Of::row_blocks
                                         : Of::column_blocks;
            for (int d = used; d < it.count; ++d) {
                const JointDigit& next = digit(i, d);
                if (!add_loop(next.size, next.from * from_bytes_, next.to * to_bytes_, of)) {
                    return false;
                }
            }
        }
        return true;
    }

    bool cut() {
        PieceAxis &rows = plan_.rows, &columns = plan_.columns;
        if (plan_.move != Move::transposition) {
            rows.cut = std::min(rows.block, kTaskBytes / from_bytes_);
            const std::int64_t least = kTaskBytes / (rows.cut * from_bytes_);
            columns.cut = std::min(columns.block, rounded(least, kFewRows));
        } else {
            // Of two plain ones that which has the longer rows: few streams, and long ones.
            is_plain_from_ = plain_ > 0 || (plain_ == 0 && rows.block < columns.block * plan_.taps);
            // The axis whose plain rows are far apart, and the one along them.
            PieceAxis &far = is_plain_from_ ? rows : columns,
                      &near = is_plain_from_ ? columns : rows;
            const bool few =
                plain_ != 0 && near.is_blocked && (!is_plain_from_ || blocks() < kFewPieces);
            far.cut = std::min(far.block, few ? kFewRows : kWholeRows);
            const std::int64_t least = kTaskBytes / (far.cut * plan_.taps * from_bytes_);
            near.cut =
                near.is_blocked ? near.block : std::min(near.block, rounded(least, kCutStep));
            plan_.tile.reads_ahead = is_plain_from_ && (near.is_blocked || plan_.taps > 1);
        }
        const std::int64_t bytes = rows.cut * columns.cut * plan_.taps * from_bytes_;
        plan_.pieces_of_task = std::max<std::int64_t>(kTaskBytes / bytes, 1);
        return add_cuts(rows, Of::row_cuts) && add_cuts(columns, Of::column_cuts);
    }

    static std::int64_t rounded(std::int64_t value, std::int64_t step) {
        return std::max(value / step * step, step);
    }

    bool add_cuts(const PieceAxis& axis, Of of) {
        const std::int64_t count = Blocks{axis.block, axis.cut}.count();
        return count <= 1 || add_loop(count, axis.cut / axis.from_step * axis.from,
                                      axis.cut / axis.to_step * axis.to, of);
    }

    std::int64_t blocks() {
        std::int64_t count = 1;
        for (int i = 0; i < plan_.loop_count; ++i) count *= loop(i).count;
        return count;
    }

    void sort_loops() {
        const auto stride = [&](const PieceLoop& it) { return is_plain_from_ ? it.from : it.to; };
        std::stable_sort(
            plan_.loops.begin(), plan_.loops.begin() + plan_.loop_count,
            [&](const PieceLoop& a, const PieceLoop& b) { return stride(a) > stride(b); });
        repeat_many();
    }

    // One call moves what follows along the innermost loop: many pieces, each of which repeats
    // around them, as many as stay in the caches until then.
    void repeat_many() {
        const int count = plan_.loop_count;
        if (count < 2 || count == ReorderPlan::kLoops || loop(count - 1).from != 0) return;
        const PieceLoop repeats = loop(count - 1), pieces = loop(count - 2);
        std::int64_t part =
            std::min(pieces.count, kTaskBytes / std::max<std::int64_t>(pieces.to, 1));
        while (part > 1 && pieces.count % part != 0) --part;
        if (part <= repeats.count || pieces.of != Of::none) return;
        loop(count - 2) = {pieces.count / part, part * pieces.from, part * pieces.to, pieces.of};
        loop(count - 1) = repeats;
        loop(plan_.loop_count++) = {part, pieces.from, pieces.to, pieces.of};
    }

    JointDimensions it_;
    std::int64_t from_bytes_;
    std::int64_t to_bytes_;
    bool converts_;
    std::int64_t plain_;  // above 0 where `from` is plain, below where `to` is
    bool is_plain_from_ = true;
    ReorderPlan plan_ = {};
    int row_ = kNone;
    int column_ = kNone;
    std::array<int, JointDimensions::kMost> used_ = {};  // digits of a dimension in an axis
};

}  // namespace

ReorderPlan plan_reorder(const Layout& from, const Layout& to) { return Planner(from, to).plan(); }

}  // namespace dlprim
