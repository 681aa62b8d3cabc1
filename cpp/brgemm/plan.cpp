#include "brgemm/plan.h"

#include <algorithm>
#include <array>
#include <limits>
#include <span>

#include "brgemm/amx/tile_map.h"

namespace dlprim {
namespace {

constexpr double kLoadsPerFma = 0.96;   // what the load units issue beside the FMAs
constexpr double kLoadsExposed = 0.02;  // their part that shows where registers are few
constexpr double kCallLoads = 8;        // loads of a call besides those of the steps
constexpr double kTileOverhead = 8;     // cycles to start and store a tile, not hidden

// 7 and 14 rows, on large weights, gained nothing from four vectors side by side.
constexpr std::int64_t kManyRows = 24;

constexpr int kMaxVectors = 4;
constexpr int kMaxStreamedVectors = 8;  // of B, where A is held
constexpr int kSpareChains = 2;  // accumulators beyond what latency times throughput asks for
constexpr std::int64_t kUnrolledFmas = 192;      // FMAs in the body of a k loop
constexpr std::int64_t kStraightLineFmas = 448;  // at most this many: no k loop at all
constexpr int kMaxUnroll = 32;
constexpr std::int64_t kUnrolledTileSteps = 4;

template <typename Integer>
Integer ceil_div(Integer value, Integer divisor) {
    return (value + divisor - 1) / divisor;
}

// In which the part of a row of B that a tile needs comes from the L2 cache.
double l2_cycles_per_step(const BrgemmSpec& spec, Isa isa, const Machine& machine,
                          const Tile& tile) {
    const int bytes = tile.vectors * vector_file(isa).bytes;
    const bool is_whole_row = spec.ldb * kWordBytes == bytes;
    const int lines = ceil_div(bytes, kLineBytes);
    const double rate = lines > 1 || is_whole_row ? machine.bytes_from_l2_per_cycle
                                                  : machine.scattered_bytes_from_l2_per_cycle;
    return (is_whole_row ? bytes : lines * kLineBytes) / rate;
}

struct StepCost {
    double cycles = 0;
    std::string_view bound = {};
};

// A dimension as parts of at most two sizes, the larger ones first.
struct Cut {
    std::int64_t large_count;
    std::int64_t large;
    std::int64_t small_count;
    std::int64_t small;
};

// As few parts of at most `largest` as possible, of sizes that differ by at most one.
Cut equalised(std::int64_t total, std::int64_t largest) {
    const std::int64_t parts = ceil_div(total, largest);
    const std::int64_t large = ceil_div(total, parts);
    const std::int64_t small_count = parts * large - total;
    return {parts - small_count, large, small_count, large - 1};
}

Cut with_remainder(std::int64_t total, std::int64_t largest) {
    const std::int64_t rest = total % largest;
    return {total / largest, largest, rest > 0 ? 1 : 0, rest};
}

class Planner {
public:
    Planner(const BrgemmSpec& spec, Isa isa, const Machine& machine)
        : spec_(spec),
          isa_(isa),
          machine_(machine),
          lanes_(vector_file(isa).bytes / kWordBytes),
          words_(spec.words()),
          needs_(spec, isa),
          has_few_registers_(!needs_.avx512 && needs_.multiply == Multiply::fma),
          latency_(has_few_registers_ ? machine.fma_latency : needs_.cost.latency),
          lines_of_a_kept_(machine.lines_kept(spec.lda * size_of(spec.a_type))) {}

    BrgemmPlan plan() const {
        BrgemmPlan best;
        double best_cycles = std::numeric_limits<double>::infinity();
        for (int vectors = has_few_registers_ ? kMaxStreamedVectors : kMaxVectors; vectors >= 1;
             --vectors) {
            if (!fits(with_quads({.rows = 1, .vectors = vectors}))) continue;
            BrgemmPlan candidate = with_columns(vectors);
            const double cycles = cycles_of(candidate) * again(candidate);
            if (cycles < best_cycles) {
                best_cycles = cycles;
                best = std::move(candidate);
            }
        }
        return best;
    }

private:
    // Times as long for going through rows again that come from memory; they are fetched ahead
    // then.
    double again(const BrgemmPlan& plan) const {
        const bool streams = needs_.avx512 && needs_.multiply == Multiply::fma && !spec_.trans_a &&
                             spec_.m >= kManyRows && (spec_.prefetch_a || spec_.prefetch_c);
        double blocks = 0;
        for (const ColumnGroup& group : plan.columns) blocks += static_cast<double>(group.count);
        return streams ? 1 + machine_.columns_again * (blocks - 1) : 1;
    }

    BrgemmPlan with_columns(int most_vectors) const {
        const std::int64_t vectors = ceil_div<std::int64_t>(spec_.n, lanes_);
        const Cut cut = equalised(vectors, most_vectors);
        BrgemmPlan plan{.spec = spec_,
                        .isa = isa_,
                        .multiply = needs_.multiply,
                        .lanes = lanes_,
                        .tail_lanes = static_cast<int>(spec_.n % lanes_),
                        .columns = {}};
        add_columns(plan, cut.large_count, static_cast<int>(cut.large), cut.small_count == 0);
        add_columns(plan, cut.small_count, static_cast<int>(cut.small), true);
        return plan;
    }

    void add_columns(BrgemmPlan& plan, std::int64_t count, int vectors, bool last) const {
        if (count == 0) return;
        const bool split_tail = last && plan.tail_lanes > 0;
        const std::int64_t whole = split_tail ? count - 1 : count;
        const std::vector<RowGroup> rows = cut_rows(vectors);
        if (whole > 0) plan.columns.push_back({whole, vectors, false, rows});
        if (split_tail) plan.columns.push_back({1, vectors, true, rows});
    }

    // Equal tiles are best where a thin one could not hide the FMA's latency; full tiles and a thin
    // one with several sets of accumulators are best where registers are few.
    std::vector<RowGroup> cut_rows(int vectors) const {
        const std::int64_t tallest = std::min<std::int64_t>(most_rows(vectors), spec_.m);
        std::vector<RowGroup> known(static_cast<std::size_t>(tallest) + 1);  // by height
        const auto once = [&](std::int64_t rows, std::int64_t count) {
            RowGroup& group = known[static_cast<std::size_t>(rows)];
            if (group.tile.rows == 0) group = row_group(rows, vectors);
            group.count = count;
            return group;
        };
        std::vector<RowGroup> groups;
        double least = std::numeric_limits<double>::infinity();
        const auto consider = [&](const Cut& cut) {
            std::array<RowGroup, 2> both = {once(cut.large, cut.large_count)};
            if (cut.small_count > 0) both[1] = once(cut.small, cut.small_count);
            const std::span<const RowGroup> rows(both.data(), cut.small_count > 0 ? 2 : 1);
            const double cycles = cycles_of(rows);
            if (cycles >= least) return;
            least = cycles;
            groups.assign(rows.begin(), rows.end());
        };
        for (std::int64_t most = tallest; most >= 1; --most) {
            consider(equalised(spec_.m, most));
            consider(with_remainder(spec_.m, most));
        }
        return groups;
    }

    int most_rows(int vectors) const {
        int rows = 1;
        while (fits(with_quads({.rows = rows + 1, .vectors = vectors}))) ++rows;
        return rows;
    }

    bool fits(const Tile& tile) const {
        if (uses_tiles()) {
            const std::int64_t row =
                std::max(spec_.lda * size_of(spec_.a_type), spec_.ldc * size_of(spec_.c_type));
            return tile_map(spec_, tile).total <= kTileRegisters &&
                   tile.rows * row <= std::numeric_limits<std::int32_t>::max();
        }
        return register_map(needs_, tile).total <= vector_file(isa_).registers;
    }

    // As few quad rows as bring the loads of a tile below its FMAs: too many shuffles would take
    // the FMA units' turns.
    Tile with_quads(Tile tile) const {
        const std::int64_t run = spec_.trans_a ? tile.rows : words_;
        if (!machine_.shuffles_beat_broadcast_loads || !needs_.cost.quads ||
            register_map(needs_, tile).streams_b) {
            return tile;
        }
        const auto fmas = static_cast<double>(tile.rows * tile.vectors * words_);
        const auto covered = static_cast<double>(spec_.trans_a ? words_ : words_ / kQuad * kQuad);
        double loads = static_cast<double>((tile.rows + tile.vectors) * words_) + kCallLoads;
        const int by = spec_.trans_a ? kQuad : 1;  // transposed quads lie across four rows
        while (loads > kLoadsPerFma * fmas && tile.quad_rows + by <= tile.rows && run >= kQuad) {
            tile.quad_rows += by;
            loads -= by * covered * (1 - 1.0 / kQuad);
        }
        return tile;
    }

    RowGroup row_group(std::int64_t rows, int vectors) const {
        Tile tile = with_quads({.rows = static_cast<int>(rows), .vectors = vectors});
        const double wanted = latency_ * machine_.fmas_per_cycle + kSpareChains;
        while (!uses_tiles() && tile.accumulators() < wanted && tile.sets < words_) {
            Tile more = tile;
            ++more.sets;
            if (!fits(more)) break;
            tile = more;
        }
        const StepCost step = step_cost(tile);
        return {tile, 1, unroll(tile), step.cycles, step.bound};
    }

    // Multiplications that one step of a tile starts, sums included.
    int multiplications(const Tile& tile) const {
        return tile.rows * tile.vectors + (needs_.sums_b ? tile.vectors : 0) +
               (needs_.sums_a ? tile.rows : 0);
    }

    // In which a tile reads its lines of A from the L2 cache step by step, where they are so far
    // apart that they drive each other out of the L1 cache: rows a power of two apart share its
    // sets.
    double conflict_cycles(const Tile& tile) const {
        if (spec_.trans_a || tile.rows <= lines_of_a_kept_) return 0;
        return tile.rows * kLineBytes / machine_.bytes_from_l2_per_cycle;
    }

    StepCost step_cost(const Tile& tile) const {
        if (uses_tiles()) {
            const TileCost cost = tile_cost(spec_, tile);
            const double most = std::max({cost.multiplies, cost.shuffles, cost.from_l2});
            return {most, most == cost.multiplies ? "multiplies"
                          : most == cost.from_l2  ? "L2"
                                                  : "operations"};
        }
        const MultiplyCost& cost = needs_.cost;
        const double multiplies = multiplications(tile) * cost.passes;
        const double a_loads = tile.rows - tile.quad_rows * (1 - 1.0 / kQuad);
        const double operations =
            multiplies * cost.instructions + tile.quad_rows +
            cost.passes * (tile.rows * cost.a_operations + tile.vectors * cost.b_operations);
        const double from_l2 = l2_cycles_per_step(spec_, isa_, machine_, tile);
        const double loads = cost.passes * (tile.vectors + a_loads) / machine_.loads_per_cycle;
        // Float32 on AVX2, sixteen registers: a load stands beside nearly every multiply-add, and
        // shows behind fewer sums than hide the latency.
        const bool few = has_few_registers_;
        const bool hides = !few || tile.accumulators() >= latency_ * machine_.fmas_per_cycle;
        const double chain = latency_ + (hides ? 0 : 1);
        const double exposed = machine_.l2_exposed * from_l2 + (few ? kLoadsExposed * loads : 0) +
                               conflict_cycles(tile);
        const std::array<StepCost, 5> needs = {
            {{multiplies / machine_.fmas_per_cycle, "multiplies"},
             {loads, "loads"},
             {from_l2, "L2"},
             {operations / machine_.vector_ops_per_cycle, "operations"},
             {chain * cost.passes / tile.sets, "latency"}}};
        const StepCost most = *std::max_element(
            needs.begin(), needs.end(),
            [](const StepCost& one, const StepCost& other) { return one.cycles < other.cycles; });
        return {most.cycles + exposed, most.bound};
    }

    int unroll(const Tile& tile) const {
        // The last step of an iteration is reached with a 32-bit displacement.
        const std::int64_t step_words = std::max(spec_.ldb, spec_.trans_a ? spec_.lda : 1) *
                                        (uses_tiles() ? tile_depth(spec_) : 1);
        const std::int64_t reach =
            std::numeric_limits<std::int32_t>::max() / (step_words * kWordBytes);
        if (uses_tiles()) return static_cast<int>(std::min(reach, kUnrolledTileSteps));
        const std::int64_t multiplies =
            std::int64_t{multiplications(tile)} * needs_.cost.passes * needs_.cost.instructions;
        if (words_ <= std::min(kStraightLineFmas / multiplies, reach)) {
            return static_cast<int>(words_);
        }
        const std::int64_t steps =
            std::clamp<std::int64_t>(kUnrolledFmas / multiplies, kQuad, kMaxUnroll);
        return static_cast<int>(std::min(steps, reach) / kQuad * kQuad);
    }

    double cycles_of(std::span<const RowGroup> rows) const {
        double cycles = 0;
        for (const RowGroup& group : rows) {
            const double once = uses_tiles() ? tile_cost(spec_, group.tile).block : kTileOverhead;
            const double tile_cycles = static_cast<double>(words_) * group.cycles + once;
            cycles += static_cast<double>(group.count) * tile_cycles;
        }
        return cycles;
    }

    double cycles_of(const BrgemmPlan& plan) const {
        double cycles = 0;
        for (const ColumnGroup& group : plan.columns) {
            cycles += static_cast<double>(group.count) * cycles_of(group.rows);
            if (uses_tiles() && group.rows.size() + plan.columns.size() > 2) {
                cycles += static_cast<double>(group.count * group.rows.size()) * kCyclesToConfigure;
            }
        }
        return cycles;
    }

    bool uses_tiles() const { return needs_.multiply == Multiply::tiles; }

    BrgemmSpec spec_;
    Isa isa_;
    const Machine& machine_;
    int lanes_;
    std::int64_t words_;
    RegisterNeeds needs_;
    bool has_few_registers_;
    double latency_;
    double lines_of_a_kept_;
};

std::string to_string(const Tile& tile) {
    std::string text = std::to_string(tile.rows) + "x" + std::to_string(tile.vectors);
    if (tile.sets > 1) text += "x" + std::to_string(tile.sets) + "sets";
    if (tile.quad_rows > 0) text += "/" + std::to_string(tile.quad_rows) + "quads";
    return text;
}

}  // namespace

BrgemmPlan make_plan(const BrgemmSpec& spec, Isa isa, const Machine& machine) {
    const Isa level = kernel_isa(spec, isa);
    if (level == Isa::scalar) return {.spec = spec, .isa = level, .columns = {}};
    return Planner(spec, level, machine).plan();
}

Tile BrgemmPlan::main_tile() const {
    Tile best{.rows = 1, .vectors = 1};
    std::int64_t most = 0;
    for (const ColumnGroup& column : columns) {
        for (const RowGroup& row : column.rows) {
            const std::int64_t work = column.count * row.count * row.tile.rows * row.tile.vectors;
            if (work > most) {
                most = work;
                best = row.tile;
            }
        }
    }
    return best;
}

namespace {

// After how many words of k the sets of a tile, which take them in turn, begin again with the
// first.
std::int64_t words_of_turn(const BrgemmSpec& spec, const RowGroup& group) {
    const std::int64_t whole = spec.k / elements_per_word(spec.a_type);
    const std::int64_t run = std::min<std::int64_t>(group.unroll, whole);  // of the loop along k
    return run % group.tile.sets == 0 || run == spec.words() ? group.tile.sets : run;
}

using Turns = std::vector<std::pair<int, std::int64_t>>;

// Of every row in a block of columns: sets, and words of a turn.
Turns turns_of_rows(const BrgemmSpec& spec, const ColumnGroup& column) {
    Turns turns;
    for (const RowGroup& group : column.rows) {
        const auto rows = static_cast<std::size_t>(group.count * group.tile.rows);
        turns.insert(turns.end(), rows, {group.tile.sets, words_of_turn(spec, group)});
    }
    return turns;
}

}  // namespace

bool sums_alike(const BrgemmPlan& one, const BrgemmPlan& other) {
    if (one.isa != other.isa || one.multiply != other.multiply) return false;
    // Tiles of sums may go through the depth in other steps.
    if (one.multiply == Multiply::tiles && !is_integer(one.spec.a_type)) return false;
    if (is_integer(one.spec.a_type) || one.isa == Isa::scalar) return true;
    const Turns turns = turns_of_rows(one.spec, one.columns.front());
    const auto is_alike = [&](const ColumnGroup& it) {
        return turns_of_rows(one.spec, it) == turns;
    };
    return std::all_of(one.columns.begin(), one.columns.end(), is_alike) &&
           std::all_of(other.columns.begin(), other.columns.end(), is_alike);
}

bool sums_in_order(const BrgemmPlan& plan) {
    if (is_integer(plan.spec.a_type)) return true;
    // Plain loops add in float64 and round once a call.
    if (plan.multiply == Multiply::tiles || plan.isa < Isa::avx2) return false;
    return std::all_of(plan.columns.begin(), plan.columns.end(), [](const ColumnGroup& column) {
        return std::all_of(column.rows.begin(), column.rows.end(),
                           [](const RowGroup& row) { return row.tile.sets == 1; });
    });
}

std::string to_string(const BrgemmPlan& plan) {
    std::string text = to_string(plan.spec) + " " + std::string(name_of(plan.isa)) + " " +
                       std::string(name_of(plan.multiply));
    for (const ColumnGroup& column : plan.columns) {
        text += "\n  " + std::to_string(column.count) + " column blocks of " +
                std::to_string(column.vectors) +
                (column.masked ? " vectors, masked:" : " vectors:");
        for (const RowGroup& row : column.rows) {
            text += " " + std::to_string(row.count) + " of " + to_string(row.tile) + " by " +
                    std::to_string(row.unroll) + " (" + std::string(row.bound) + ")";
        }
    }
    return text;
}

}  // namespace dlprim
