#include "primitives/winograd_products.h"

#include <algorithm>
#include <set>

namespace dlprim {
namespace {

constexpr std::int64_t kLine = 16;  // floats of a cache line
constexpr std::int64_t kFloat = 4;  // bytes

// An odd number of lines that holds `floats`.
std::int64_t odd_lines(std::int64_t floats) {
    const std::int64_t lines = (floats + kLine - 1) / kLine;
    return (lines + (lines % 2 == 0 ? 1 : 0)) * kLine;
}

Term term_of(Range tiles, const WinogradPanels& panels, std::int64_t depth) {
    return {.m = tiles.size(),
            .k = depth,
            .lda = panels.ld_in,
            .c_row = tiles.begin,
            .entries_a = {tiles.begin * panels.ld_in * kFloat},
            .entries_b = {0},
            .first = true,
            .last = true};
}

Contraction contraction_of(const TileGrid& grid, const WinogradPanels& panels,
                           const WinogradProducts::Kind& kind) {
    Contraction it;
    const std::int64_t tiles = kind.counts[0] + kind.counts[1] + kind.counts[2] + kind.counts[3];
    const std::int64_t filter = panels.filter_stride(kind.depth);
    it.loops = {{.letter = 's',
                 .extent = grid.slots(),
                 .a = panels.slots_stride * kFloat,
                 .b = filter * kFloat,
                 .c = panels.sums_stride * kFloat},
                {.letter = 'k', .extent = 1}};
    it.columns = {.loop = 1, .unit = kind.columns, .total = kind.columns};
    it.selector_loop = 0;
    it.block_rows = tiles;
    std::vector<Range> classes;
    for (int i = 0; i < grid.slots_h(); ++i) {
        for (int j = 0; j < grid.slots_w(); ++j) {
            const Range rows = grid.rows.large == 2 ? Range{0, tiles}
                                                    : tiles_of_slot(kind.counts, i, j);
            const auto known = std::find(classes.begin(), classes.end(), rows);
            it.selections.push_back({.block_class = static_cast<int>(known - classes.begin())});
            if (known != classes.end()) continue;
            classes.push_back(rows);
            it.classes.emplace_back();
            if (rows.size() > 0) it.classes.back().push_back(term_of(rows, panels, kind.depth));
        }
    }
    it.ldb = panels.ld_out;
    it.ldc = panels.ld_out;
    it.accumulates = kind.accumulates;
    const auto slots = static_cast<double>(grid.slots());
    it.bytes_a = slots * static_cast<double>(panels.slots_stride * kFloat);
    it.bytes_b = slots * static_cast<double>(filter * kFloat);
    it.bytes_c = slots * static_cast<double>(panels.sums_stride * kFloat);
    it.flops = 2 * slots * static_cast<double>(tiles * kind.depth * kind.columns);
    return it;
}

}  // namespace

std::int64_t WinogradPanels::filter_stride(std::int64_t depth) const {
    return odd_lines(depth * ld_out);
}

WinogradPanels winograd_panels(std::int64_t tiles, std::int64_t in, std::int64_t out) {
    WinogradPanels panels;
    panels.ld_in = odd_lines(in);
    panels.ld_out = (out + kLine - 1) / kLine * kLine;
    panels.slots_stride = odd_lines(tiles * panels.ld_in);
    panels.sums_stride = odd_lines(tiles * panels.ld_out);
    return panels;
}

void WinogradProducts::prepare(const TileGrid& grid, const WinogradPanels& panels,
                               const Kind& kind) {
    std::unique_ptr<const ContractionPlan>& plan = plans_[kind];
    if (plan) return;
    plan = std::make_unique<const ContractionPlan>(contraction_of(grid, panels, kind),
                                                   parse_schedule("s k"));
}

std::vector<std::string> WinogradProducts::kernel_names() const {
    std::set<std::string> names;
    for (const auto& [kind, plan] : plans_) {
        for (const std::string& name : plan->kernel_names()) names.insert(name);
    }
    return {names.begin(), names.end()};
}

}  // namespace dlprim
