// The product of one step of a layer on one thread, found once: which kernels it calls for which
// tiles. From step to step only two operands move, so what is left of a call is their addresses.
// Where sequences are few a step takes less than the walk through its nest. A list is found anew
// for every run, in memory that it keeps: a layer that ran before allocates nothing.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "brgemm/amx/kept_tiles.h"
#include "brgemm/brgemm.h"
#include "primitives/nest/contraction_plan.h"
#include "primitives/rnn/rnn_pass.h"

namespace dlprim {

// Whether the loops behind rows and channels are at their end.
inline bool is_finished(const ContractionPlan& plan, const LoopNest::Ranges& ranges) {
    const std::vector<Loop>& loops = plan.nest().loops();
    const int parts = plan.contraction().columns.part_loop;
    for (std::size_t i = kChannelsLoop + 1; i < loops.size(); ++i) {
        if (static_cast<int>(i) != parts && ranges[i].end != loops[i].extent) return false;
    }
    return true;
}

// What is finished at a time.
struct StepTile {
    Range rows = {};
    std::int64_t panel = 0;
    Range columns = {};  // of the panel
};

// `width` columns in a panel.
inline StepTile tile_of(const ContractionPlan& plan, const LoopNest::Ranges& ranges,
                        std::int64_t width) {
    const Dimension& columns = plan.contraction().columns;
    StepTile tile{ranges[kRowsLoop], ranges[kChannelsLoop].begin, {0, width}};
    if (columns.part_loop >= 0) {
        const std::int64_t part = ranges[static_cast<std::size_t>(columns.part_loop)].begin;
        tile.columns = Blocks{width, columns.unit}.at(part);
    }
    return tile;
}

class StepCalls {
public:
    // operands(ranges) are those of a body in the step at hand; panels have `width` columns.
    template <class Operands>
    void find(const ContractionPlan& plan, std::int64_t width, const Operands& operands) {
        calls_.clear();
        tiles_.clear();
        is_whole_ = true;
        plan.nest().run([&](const LoopNest::Ranges& ranges) {
            const ContractionPlan::Call call = plan.call_of(operands(ranges), ranges);
            is_whole_ = is_whole_ && call.kernel != nullptr;
            calls_.push_back(
                {call, static_cast<const char*>(call.args.a), static_cast<char*>(call.args.c)});
            if (!is_finished(plan, ranges)) return;
            tiles_.push_back({tile_of(plan, ranges, width), calls_.size()});
        });
    }

    // Whether every body is one call.
    bool is_whole() const { return is_whole_; }

    // All tiles, with A and C so many bytes from where they were found: finish(tile) behind each.
    template <class Finish>
    void run(std::int64_t a, std::int64_t c, const Finish& finish) {
        KeptTiles kept;
        std::size_t next = 0;
        for (const auto& [tile, end] : tiles_) {
            for (; next < end; ++next) {
                Moving& it = calls_[next];
                BrgemmArgs& args = it.call.args;
                args.a = it.a + a;
                args.c = it.c + c;
                if (args.residual != nullptr) args.residual = args.c;  // sums that are added to
                args.tiles = kept.state();
                (*it.call.kernel)(args);
            }
            finish(tile);
        }
    }

private:
    struct Moving {
        ContractionPlan::Call call;
        const char* a;  // where they were found
        char* c;
    };
    struct Finished {
        StepTile tile;
        std::size_t end;  // of its calls
    };

    std::vector<Moving> calls_;
    std::vector<Finished> tiles_;
    bool is_whole_ = true;
};

}  // namespace dlprim
