// One step through time: the nest of a recurrent product, block by block, and what is done with
// every finished tile while it is in the cache.
#pragma once

#include <algorithm>
#include <cstdint>

#include "primitives/nest/contraction_plan.h"
#include "primitives/rnn/rnn_gates.h"
#include "primitives/tensor/parallel.h"

namespace dlprim {

// Loops of the recurrent products (rnn_contraction.h).
inline constexpr std::size_t kRowsLoop = 0;
inline constexpr std::size_t kChannelsLoop = 1;
inline constexpr std::size_t kGatesLoop = 2;  // of the recurrence

class RnnStep {
public:
    RnnStep(const ContractionPlan& plan, int threads) : plan_(plan), threads_(threads) {}

    // Rows of a block of the schedule.
    static std::int64_t block_rows(const ContractionPlan& plan) {
        std::int64_t step = plan.nest().loops()[kRowsLoop].extent;
        for (const Level& level : plan.nest().schedule().levels) {
            if (level.letter == 'n') step = std::min(level.step, step);
        }
        return step;
    }

    // body(ranges, thread) for the whole nest, and finish(rows, panel, thread) behind every block.
    template <class Body, class Finish>
    void run(const Body& body, const Finish& finish) const {
        const LoopNest& nest = plan_.nest();
        const std::int64_t parts = std::min<std::int64_t>(threads_, nest.tasks());
        parallel_for(parts, [&](std::int64_t part) {
            nest.run(chunk(nest.tasks(), parts, part), [&](const LoopNest::Ranges& ranges) {
                body(ranges, part);
                if (!is_last(ranges)) return;
                finish(ranges[kRowsLoop], ranges[kChannelsLoop].begin, part);
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
    int threads_;
};

}  // namespace dlprim
