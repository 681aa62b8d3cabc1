// What both passes through time share: states in panels, and the nest of one step, block by block,
// with what is done to every finished tile while it is in the cache.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "primitives/reorder/pack.h"
#include "primitives/rnn/rnn.h"
#include "primitives/rnn/rnn_gates.h"
#include "primitives/tensor/parallel.h"

namespace dlprim {

class RnnSteps {
protected:
    using Plan = ScheduledPass::PlanPointer;

    RnnSteps(const Rnn& rnn, const std::int64_t* lengths)
        : shape_(rnn.shape()),
          lengths_(lengths),
          passes_(rnn.passes_),
          reorders_(rnn.reorders_),
          pool_(*rnn.workspaces_) {}

    const ScheduledPass& pass(RnnPass which) const { return passes_.at(which); }

    // A state of (N, K) to panels; no state is zeros.
    void load_state(DType dtype, const void* plain, void* panels) const {
        if (plain == nullptr) {
            std::memset(panels, 0, static_cast<std::size_t>(state_elements_ * size_of(dtype)));
        } else {
            (dtype == DType::f32 ? reorders_.load_floats : reorders_.load_state).run(plain, panels);
        }
    }
    // One of the layer's type whose panels are float32; `halves` has room for them in that type.
    void load_state(const void* plain, char* halves, float* panels) const {
        if (plain == nullptr || shape_.dtype == DType::f32) {
            load_state(DType::f32, plain, panels);
        } else {
            load_state(shape_.dtype, plain, halves);
            widen_to_f32(reinterpret_cast<const std::uint16_t*>(halves), panels, state_elements_);
        }
    }

    // Elements to a tile in panels of `panel_rows` rows, of which it begins with `row`, and in a
    // plain tensor of K channels.
    std::int64_t panel_offset(std::int64_t panel_rows, std::int64_t row, std::int64_t panel) const {
        return (panel * panel_rows + row) * state_.width;
    }
    std::int64_t plain_offset(std::int64_t row, std::int64_t panel) const {
        return row * shape_.K + panel * state_.width;
    }

    // What the tiles of both passes have at time t.
    GateTile tile_at(const RnnSaved& saved, std::int64_t t, Range rows, std::int64_t panel) const {
        const std::int64_t row = t * shape_.N + rows.begin;
        GateTile tile{.rows = rows.size(),
                      .channels = state_.at(panel).size(),
                      .width = state_.width,
                      .K = shape_.K};
        if (lengths_ != nullptr) tile.valid = {lengths_ + rows.begin, t};
        if (saved.gates == nullptr) return tile;
        tile.gates = saved.gates + row * shape_.gates() * shape_.K + panel * state_.width;
        if (saved.cells != nullptr) tile.cells = saved.cells + plain_offset(row, panel);
        if (saved.hidden_n != nullptr) tile.hidden_n = saved.hidden_n + plain_offset(row, panel);
        return tile;
    }

    // The nest of a recurrent product: body(ranges, thread) in the order of its schedule, and
    // finish(rows, panel, thread) behind every tile.
    template <class Body, class Finish>
    void run_step(const ContractionPlan& plan, const Body& body, const Finish& finish) const {
        const LoopNest& nest = plan.nest();
        const std::int64_t parts = std::min<std::int64_t>(threads_, nest.tasks());
        parallel_for(parts, [&](std::int64_t part) {
            nest.run(chunk(nest.tasks(), parts, part), [&](const LoopNest::Ranges& ranges) {
                body(ranges, part);
                if (!is_finished(nest, ranges)) return;
                finish(ranges[kRowsLoop], ranges[kChannelsLoop].begin, part);
            });
        });
    }

    // From the tile of these rows and panel to the one that follows it: in the same step, or in
    // one `step_rows` rows away.
    NextTile next_tile(Range rows, std::int64_t panel, std::int64_t step_rows) const {
        if (rows.end < shape_.N) return {rows.size(), 0};
        if (panel + 1 < state_.count()) return {-rows.begin, state_.width};
        return {step_rows - rows.begin, -panel * state_.width};
    }

    const RnnShape& shape_;
    const std::int64_t* lengths_;
    const std::map<RnnPass, ScheduledPass>& passes_;
    const Rnn::Reorders& reorders_;
    WorkspacePool& pool_;
    const Panels state_ = shape_.state();
    const std::int64_t state_elements_ = state_.padded() * shape_.N;
    const std::int64_t element_ = size_of(shape_.dtype);
    const int threads_ = num_threads();
    const GateFunctions gates_ = gate_functions(usable_isa(), shape_.cell, shape_.dtype);

private:
    // Whether the loops behind rows and channels are at their end.
    static bool is_finished(const LoopNest& nest, const LoopNest::Ranges& ranges) {
        const std::vector<Loop>& loops = nest.loops();
        for (std::size_t i = kChannelsLoop + 1; i < loops.size(); ++i) {
            if (ranges[i].end != loops[i].extent) return false;
        }
        return true;
    }
};

}  // namespace dlprim
