// One step through time: the nest of a recurrent product, block by block, and what is done with
// every finished tile while it is in the cache.
#pragma once

#include <algorithm>
#include <cstdint>

#include "primitives/contraction.h"
#include "primitives/parallel.h"
#include "primitives/rnn_gates.h"

namespace dlprim {

// Loops of the recurrent products (rnn_contraction.h).
inline constexpr std::size_t kRowsLoop = 0;
inline constexpr std::size_t kChannelsLoop = 1;

class RnnStep {
public:
    // `tiles` has tile_floats() for each of `threads`.
    RnnStep(const ContractionPlan& plan, float* tiles, int threads)
        : plan_(plan), tiles_(tiles), threads_(threads), tile_floats_(tile_floats(plan)) {}

    // Rows of a block of the schedule.
    static std::int64_t block_rows(const ContractionPlan& plan) {
        return block_rows(plan.nest().schedule(), plan.nest().loops()[kRowsLoop].extent);
    }
    static std::int64_t block_rows(const Schedule& schedule, std::int64_t rows) {
        std::int64_t step = rows;
        for (const Level& level : schedule.levels) {
            if (level.letter == 'n') step = std::min(level.step, rows);
        }
        return step;
    }
    static std::int64_t tile_floats(const ContractionPlan& plan) {
        const Contraction& it = plan.contraction();
        const bool has_gates = it.loops.size() > 3;
        return (has_gates ? it.loops[2].extent : 1) * block_rows(plan) * it.ldc;
    }

    // finish(rows, panel, tile) for every block. Without operands there is no product, and the
    // tile is null.
    template <class Finish>
    void run(const void* a, const void* b, const Finish& finish) const {
        const LoopNest& nest = plan_.nest();
        const std::int64_t parts = std::min<std::int64_t>(threads_, nest.tasks());
        parallel_for(parts, [&](std::int64_t part) {
            float* const tile = tiles_ + part * tile_floats_;
            const ContractionOperands operands{.a = a, .b = b, .c = tile};
            nest.run(chunk(nest.tasks(), parts, part), [&](const LoopNest::Ranges& ranges) {
                if (a != nullptr) plan_.run_body(operands, ranges, nullptr);
                if (!is_last(ranges)) return;
                finish(ranges[kRowsLoop], ranges[kChannelsLoop].begin,
                       a == nullptr ? nullptr : tile);
            });
        });
    }

    // From the tile of these rows and panel to the one that follows it in the same step, or in one
    // `steps` rows away.
    NextTile next_tile(Range rows, std::int64_t panel, const Panels& panels,
                       std::int64_t step_rows) const {
        if (rows.end < plan_.nest().loops()[kRowsLoop].extent) return {rows.size(), 0};
        if (panel + 1 < panels.count()) return {-rows.begin, panels.width};
        return {step_rows - rows.begin, -panel * panels.width};
    }

private:
    // Whether the tile is finished: the loops behind rows and channels are at their end.
    bool is_last(const LoopNest::Ranges& ranges) const {
        const std::vector<Loop>& loops = plan_.nest().loops();
        for (std::size_t i = kChannelsLoop + 1; i < loops.size(); ++i) {
            if (ranges[i].end != loops[i].extent) return false;
        }
        return true;
    }

    const ContractionPlan& plan_;
    float* tiles_;
    int threads_;
    std::int64_t tile_floats_;
};

}  // namespace dlprim
