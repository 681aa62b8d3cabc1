#include "primitives/winograd/winograd_products.h"

#include <algorithm>
#include <set>

#include "primitives/nest/contraction_plan.h"
#include "primitives/nest/schedule_cost.h"

namespace dlprim {
namespace {

using Kind = WinogradProducts::Kind;
using Panels = WinogradProducts::Panels;

constexpr std::int64_t kLine = 16;  // floats of a cache line
constexpr std::int64_t kFloat = 4;  // bytes
// Terms of the sum in one call: so much of B stays in the L1 cache for all rows.
constexpr std::int64_t kDepth = 128;

std::int64_t whole_lines(std::int64_t floats) { return (floats + kLine - 1) / kLine * kLine; }

std::int64_t odd_lines(std::int64_t floats) {
    const std::int64_t whole = whole_lines(floats);
    return whole / kLine % 2 == 0 ? whole + kLine : whole;
}

Term term_of(Range tiles, const Panels& panels, const Kind& kind) {
    const std::int64_t first_a = tiles.begin * panels.a.ld * kFloat;
    if (!kind.over_tiles) {
        return {.m = tiles.size(),
                .lda = panels.a.ld,
                .c_row = tiles.begin,
                .entries_a = {first_a},
                .entries_b = {0},
                .first = true,
                .last = true};
    }
    Term term{
        .m = kind.channels, .k = tiles.size(), .lda = panels.a.ld, .first = true, .last = true};
    // Without tiles the sum is still to be written: zeros.
    if (tiles.size() > 0) {
        term.entries_a = {first_a};
        term.entries_b = {tiles.begin * panels.b.ld * kFloat};
    }
    return term;
}

void add_classes(const TileGrid& grid, const Panels& panels, const Kind& kind, Contraction& it) {
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
            it.classes.emplace_back();
            if (tiles.size() == 0 && !kind.over_tiles) continue;
            it.classes.back().push_back(term_of(tiles, panels, kind));
        }
    }
}

Contraction contraction_of(const TileGrid& grid, const Panels& panels, const Kind& kind) {
    Contraction it;
    const std::int64_t depth = kind.over_tiles ? 1 : kind.channels;
    it.loops = {{.letter = 's',
                 .extent = grid.slots(),
                 .a = panels.a.stride * kFloat,
                 .b = panels.b.stride * kFloat,
                 .c = panels.c.stride * kFloat},
                {.letter = 'c',
                 .extent = (depth + kDepth - 1) / kDepth,
                 .a = kDepth * (kind.over_tiles ? panels.a.ld : 1) * kFloat,
                 .b = kDepth * panels.b.ld * kFloat,
                 .sum = true},
                {.letter = 'k', .extent = 1}};
    it.columns = {.loop = 2, .unit = kind.columns, .total = kind.columns};
    it.batch = {.loop = 1, .unit = kDepth, .total = depth};
    it.selector_loop = 0;
    it.block_rows = kind.over_tiles ? kind.channels : tiles_of(kind.counts);
    add_classes(grid, panels, kind, it);
    it.trans_a = kind.over_tiles;
    it.ldb = panels.b.ld;
    it.ldc = panels.c.ld;
    it.accumulates = kind.accumulates;
    it.adds_sums = true;
    const auto slots = static_cast<double>(grid.slots());
    it.bytes_a = slots * static_cast<double>(panels.a.stride * kFloat);
    it.bytes_b = slots * static_cast<double>(panels.b.stride * kFloat);
    it.bytes_c = slots * static_cast<double>(panels.c.stride * kFloat);
    it.fetches_b = it.bytes_a + it.bytes_b > this_machine().l2;
    it.flops =
        2 * slots * static_cast<double>(tiles_of(kind.counts) * kind.channels * kind.columns);
    return it;
}

}  // namespace

SlotPanels slot_panels(std::int64_t rows, std::int64_t columns, bool dense) {
    SlotPanels panels{.ld = dense ? whole_lines(columns) : odd_lines(columns)};
    panels.stride = odd_lines(rows * panels.ld);
    return panels;
}

void WinogradProducts::prepare(const TileGrid& grid, const Panels& panels, const Kind& kind) {
    std::unique_ptr<const ContractionPlan>& plan = plans_[kind];
    if (plan) return;
    plan = std::make_unique<const ContractionPlan>(contraction_of(grid, panels, kind),
                                                   parse_schedule("s c k"));
}

std::vector<std::string> WinogradProducts::kernel_names() const {
    std::set<std::string> names;
    for (const auto& [kind, plan] : plans_) {
        for (const std::string& name : plan->kernel_names()) names.insert(name);
    }
    return {names.begin(), names.end()};
}

}  // namespace dlprim
