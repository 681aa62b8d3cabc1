#include "primitives/winograd/winograd_products.h"

#include <algorithm>
#include <bit>
#include <set>

#include "primitives/nest/contraction_builder.h"
#include "primitives/nest/contraction_plan.h"
#include "primitives/nest/schedule_cost.h"

namespace dlprim {
namespace {

using Kind = WinogradProducts::Kind;
using Panels = WinogradProducts::Panels;

constexpr std::int64_t kLine = 16;  // floats of a cache line
// Terms of the sum in one call: so much of B stays in the L1 cache for all rows.
constexpr std::int64_t kDepth = 128;

std::int64_t odd_lines(std::int64_t floats) {
    const std::int64_t whole = rounded_up(floats, kLine);
    return whole / kLine % 2 == 0 ? whole + kLine : whole;
}

// A matrix of each slot, its columns in one block.
Layout slots(std::int64_t count, std::int64_t rows, std::int64_t columns,
             const SlotPanels& panels) {
    return {DType::f32,
            {{'s', count, {{count, panels.stride}}},
             {'t', rows, {{rows, panels.ld}}},
             {'k', columns, {{columns, 1}}}}};
}

// The product over the tiles that take part in a slot: rows of it, or terms of its sum.
std::vector<Term> terms_of(Term term, Range tiles, const Panels& panels, const Kind& kind) {
    const std::int64_t first_a = tiles.begin * panels.a.ld * kFloat;
    if (!kind.over_tiles) {
        if (tiles.size() == 0) return {};
        term.m = tiles.size();
        term.c_row = tiles.begin;
        term.entries_a = {first_a};
        return {term};
    }
    term.k = tiles.size();
    term.entries_a = {first_a};
    term.entries_b = {tiles.begin * panels.b.ld * kFloat};
    // Without tiles the sum is still to be written: zeros.
    if (tiles.size() == 0) term.entries_a = term.entries_b = {};
    return {term};
}

void select_tiles(const TileGrid& grid, const Panels& panels, const Kind& kind, Contraction& it) {
    const Term term = it.classes.front().front();
    it.selector_loop = 0;
    it.selections.clear();
    it.classes.clear();
    std::vector<Range> known;
    for (int i = 0; i < grid.slots_h(); ++i) {
        for (int j = 0; j < grid.slots_w(); ++j) {
            const bool all = grid.rows.large == 2;
            const Range tiles =
                all ? Range{0, tiles_of(kind.counts)} : tiles_of_slot(kind.counts, i, j);
            const auto place = std::find(known.begin(), known.end(), tiles);
            it.selections.push_back({.block_class = static_cast<int>(place - known.begin())});
            if (place != known.end()) continue;
            known.push_back(tiles);
            it.classes.push_back(terms_of(term, tiles, panels, kind));
        }
    }
}

Contraction contraction_of(const TileGrid& grid, const Panels& panels, const Kind& kind) {
    const std::int64_t count = grid.slots(), tiles = tiles_of(kind.counts);
    // Tiles are summed in one call, whose terms say how many.
    const std::int64_t rows = kind.over_tiles ? kind.channels : tiles;
    const std::int64_t depth = kind.over_tiles ? 1 : kind.channels;
    Contraction it =
        contraction_from(parse_product(kind.over_tiles ? "m(s,t,k) +=! v(s,c,t) * y(s,c,k)"
                                                       : "m(s,t,k) +=! v(s,t,c) * u(s,c,k)"),
                         {.c = slots(count, rows, kind.columns, panels.c),
                          .a = kind.over_tiles ? slots(count, 1, rows, panels.a)
                                               : slots(count, rows, depth, panels.a),
                          .b = slots(count, depth, kind.columns, panels.b)},
                         {.loops = "sck",
                          .rows = "t",
                          .columns = "k",
                          .depth = "c",
                          .depth_unit = kDepth,
                          .transposed_a = kind.over_tiles});
    select_tiles(grid, panels, kind, it);
    it.accumulates = kind.accumulates;
    it.adds_sums = true;
    const auto all = static_cast<double>(count);
    it.bytes_a = all * static_cast<double>(panels.a.stride * kFloat);
    it.bytes_b = all * static_cast<double>(panels.b.stride * kFloat);
    it.bytes_c = all * static_cast<double>(panels.c.stride * kFloat);
    it.fetching.next_b = it.bytes_a + it.bytes_b > this_machine().l2;
    it.flops = 2 * all * static_cast<double>(tiles * kind.channels * kind.columns);
    return it;
}

}  // namespace

SlotPanels slot_panels(std::int64_t rows, std::int64_t columns, bool dense) {
    SlotPanels panels{.ld = dense ? rounded_up(columns, kLine) : odd_lines(columns)};
    panels.stride = odd_lines(rows * panels.ld);
    return panels;
}

std::int64_t room_for_tiles(std::int64_t tiles) {
    const auto octave =
        static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(tiles)));
    return rounded_up(tiles, std::max<std::int64_t>(octave / 4, 1));
}

void WinogradProducts::prepare(const TileGrid& grid, const Panels& panels, const Kind& kind) {
    std::unique_ptr<const ContractionPlan>& plan = plans_[kind];
    if (plan) return;
    plan = std::make_unique<const ContractionPlan>(contraction_of(grid, panels, kind),
                                                   parse_schedule("S c k"));
}

std::vector<std::string> WinogradProducts::kernel_names() const {
    std::set<std::string> names;
    for (const auto& [kind, plan] : plans_) {
        for (const std::string& name : plan->kernel_names()) names.insert(name);
    }
    return {names.begin(), names.end()};
}

}  // namespace dlprim
