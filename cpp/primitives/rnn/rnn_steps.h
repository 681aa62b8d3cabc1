// What both passes through time share: states in panels, and the nest of one step, block by block,
// with what is done to every finished tile while it is in the cache.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "brgemm/amx/kept_tiles.h"
#include "primitives/reorder/pack.h"
#include "primitives/rnn/rnn.h"
#include "primitives/rnn/rnn_calls.h"
#include "primitives/rnn/rnn_gates.h"
#include "primitives/tensor/parallel.h"

namespace dlprim {

// How far what the next tile reads is from what this one reads, in rows and panels. It is fetched
// while this one is computed.
struct NextTile {
    std::int64_t rows = 0;
    std::int64_t panels = 0;
};

// Operands of a row program on a tile, in the order of rnn_gates.h.
class TileArgs {
public:
    TileArgs(Range rows, std::int64_t channels) : args_{.rows = rows.size(), .columns = channels} {}

    // The stride is in bytes.
    void put(const void* first, std::int64_t stride) {
        args_.operands.at(count_++) = {const_cast<void*>(first), stride};
    }
    const RowArgs& get() const { return args_; }

private:
    RowArgs args_;
    std::size_t count_ = 0;
};

class RnnSteps {
protected:
    using Plan = ScheduledPass::PlanPointer;

    RnnSteps(const Rnn& rnn, const std::int64_t* lengths, bool is_backward)
        : shape_(rnn.shape()),
          lengths_(lengths),
          passes_(rnn.passes_),
          reorders_(is_backward ? rnn.backward_reorders_ : rnn.forward_reorders_),
          pool_(*rnn.workspaces_),
          state_(is_backward ? shape_.state_lines() : shape_.state()),
          gates_(rnn.gates_) {}

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

    // The saved gates of rows from this one on, and cells or hidden_n, from a column of the panel.
    void put_saved(TileArgs& args, const RnnSaved& saved, std::int64_t row, std::int64_t panel,
                   std::int64_t column) const {
        const float* const gates = saved.gates + plain_offset(row * shape_.gates(), panel) + column;
        for (std::int64_t gate = 0; gate < shape_.gates(); ++gate) {
            args.put(gates + gate * shape_.K, shape_.gates() * shape_.K * 4);
        }
        if (!shape_.has_state()) return;
        const float* const other = saved.cells != nullptr ? saved.cells : saved.hidden_n;
        args.put(other + plain_offset(row, panel) + column, shape_.K * 4);
    }

    // body(rows, rests) for rows one behind the other that all have a step at time t, and for such
    // as rest.
    template <class Body>
    void for_runs(Range rows, std::int64_t t, const Body& body) const {
        const auto rests = [&](std::int64_t row) {
            return lengths_ != nullptr && t >= lengths_[row];
        };
        for (Range run{rows.begin, rows.begin}; run.begin < rows.end; run.begin = run.end) {
            while (run.end < rows.end && rests(run.end) == rests(run.begin)) ++run.end;
            body(run, rests(run.begin));
        }
    }

    struct Worker {
        std::int64_t thread;
        std::uint64_t* tiles;  // BrgemmArgs::tiles
    };

    // The nest of a recurrent product: body(ranges, worker) in the order of its schedule, and
    // finish(tile, thread) behind every tile, which may be a part of a panel.
    template <class Body, class Finish>
    void run_step(const ContractionPlan& plan, const Body& body, const Finish& finish) const {
        const LoopNest& nest = plan.nest();
        parallel_ranges(nest.tasks(), threads_, [&](Range tasks, int seat) {
            KeptTiles tiles;
            nest.run(tasks, [&](const LoopNest::Ranges& ranges) {
                const StepTile tile = tile_of(plan, ranges, state_.width);
                body(ranges, tile, Worker{seat, tiles.state()});
                if (is_finished(plan, ranges)) finish(tile, seat);
            });
        });
    }

    // Columns of the tile that the state has.
    std::int64_t columns_of(const StepTile& tile) const {
        const std::int64_t end = std::min(tile.columns.end, state_.at(tile.panel).size());
        return std::max<std::int64_t>(end - tile.columns.begin, 0);
    }

    // From the tile of these rows and panel to the one that follows it: in the same step, or in
    // one `step_rows` rows away.
    NextTile next_tile(Range rows, std::int64_t panel, std::int64_t step_rows) const {
        if (rows.end < shape_.N) return {rows.size(), 0};
        if (panel + 1 < state_.count()) return {-rows.begin, 1};
        return {step_rows - rows.begin, -panel};
    }

    const RnnShape& shape_;
    const std::int64_t* lengths_;
    const std::map<RnnPass, ScheduledPass>& passes_;
    const Rnn::Reorders& reorders_;
    WorkspacePool& pool_;
    const Panels state_;
    const std::int64_t state_elements_ = state_.padded() * shape_.N;
    const std::int64_t element_ = size_of(shape_.dtype);
    const int threads_ = num_threads();
    const std::int64_t panel_floats_ = state_.width * 4;  // bytes of a row of a panel
    const std::int64_t panel_elements_ = state_.width * element_;
    const GatePrograms& gates_;
};

}  // namespace dlprim
