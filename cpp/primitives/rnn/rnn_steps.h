// What both passes through time share: states and rows in panels, and the nest of one step, block
// by block, with what is done to every finished tile while it is in the cache.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "primitives/rnn/rnn.h"
#include "primitives/rnn/rnn_contraction.h"
#include "primitives/rnn/rnn_gates.h"
#include "primitives/tensor/pack.h"
#include "primitives/tensor/parallel.h"

namespace dlprim {

class RnnSteps {
protected:
    using Plan = ScheduledPass::PlanPointer;

    RnnSteps(const Rnn& rnn, const std::int64_t* lengths)
        : shape_(rnn.shape()),
          lengths_(lengths),
          passes_(rnn.passes_),
          pairs_(rnn.pairs_),
          pool_(*rnn.workspaces_) {}

    const ScheduledPass& pass(RnnPass which) const { return passes_.at(which); }

    // src, and a state of (N, K), to and from panels; no state is zeros.
    PanelRows src_rows(const void* plain, void* panels) const {
        return rows_of(shape_.dtype, shape_.src(), shape_.rows(), plain, panels);
    }
    void load_state(DType dtype, const void* plain, void* panels) const {
        if (plain == nullptr) {
            std::memset(panels, 0, static_cast<std::size_t>(state_elements_ * size_of(dtype)));
        } else {
            to_panels(rows_of(dtype, state_, shape_.N, plain, panels));
        }
    }
    void store_state(DType dtype, void* panels, void* plain) const {
        from_panels(rows_of(dtype, state_, shape_.N, plain, panels));
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
    void store_state(float* panels, char* halves, void* plain) const {
        if (shape_.dtype == DType::f32) {
            store_state(DType::f32, panels, plain);
        } else {
            round_to_bf16(panels, reinterpret_cast<std::uint16_t*>(halves), state_elements_);
            store_state(shape_.dtype, halves, plain);
        }
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
    const std::optional<Rnn::SummedPairs>& pairs_;
    WorkspacePool& pool_;
    const Panels state_ = shape_.state();
    const std::int64_t state_elements_ = state_.padded() * shape_.N;
    const std::int64_t element_ = size_of(shape_.dtype);
    const int threads_ = num_threads();
    const GateFunctions gates_ = gate_functions(usable_isa(), shape_.cell, shape_.dtype);

private:
    static PanelRows rows_of(DType dtype, const Panels& panels, std::int64_t rows,
                             const void* plain, void* first) {
        return {.dtype = dtype,
                .panels = panels,
                .rows = rows,
                .plain = const_cast<void*>(plain),
                .first = first,
                .panel_rows = rows};
    }

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
