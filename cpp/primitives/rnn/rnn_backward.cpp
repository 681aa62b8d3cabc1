#include <algorithm>
#include <cstring>

#include "jit/isa.h"
#include "primitives/rnn/rnn.h"
#include "primitives/rnn/rnn_backward_scratch.h"
#include "primitives/rnn/rnn_gates.h"
#include "primitives/rnn/rnn_step.h"
#include "primitives/rnn/rnn_weight_gradients.h"
#include "primitives/tensor/pack.h"

namespace dlprim {
namespace {

std::size_t size(std::int64_t bytes) { return static_cast<std::size_t>(bytes); }

}  // namespace

class RnnBackwardPass {
public:
    RnnBackwardPass(const Rnn& rnn, const RnnBackward& tensors)
        : rnn_(rnn),
          shape_(rnn.shape()),
          tensors_(tensors),
          threads_(num_threads()),
          element_(size_of(shape_.dtype)),
          step_(step_plan(rnn)),
          lease_(*rnn.workspaces_,
                 RnnBackwardScratch(rnn.shape(), step_.get(), threads_, nullptr).bytes),
          scratch_(rnn.shape(), step_.get(), threads_, lease_.data()) {}

    static Rnn::Plan step_plan(const Rnn& rnn) {
        return rnn.shape().rows() > 0 ? rnn.plan(RnnPass::diff_recurrence) : nullptr;
    }

    void run() {
        start();
        if (shape_.rows() == 0) {
            clear_weight_gradients(shape_, tensors_);
        } else {
            gather_rows();
            for (std::int64_t step = shape_.T; step-- > 0;) run_step(step);
            pass_to_first_state();
            rnn_.plan(RnnPass::diff_src)
                ->run({.a = scratch_.deltas,
                       .b = tensors_.weights.w_ih_transposed,
                       .c = tensors_.diff_src},
                      nullptr, threads_);
            weight_gradients(
                shape_, tensors_, scratch_,
                {*rnn_.plan(RnnPass::diff_w_ih), *rnn_.plan(RnnPass::diff_w_hh), threads_});
        }
        finish();
    }

private:
    PanelRows state_rows(DType dtype, const void* plain, void* panels) const {
        return {.dtype = dtype,
                .panels = shape_.state(),
                .rows = shape_.N,
                .plain = const_cast<void*>(plain),
                .first = panels,
                .panel_rows = shape_.N};
    }

    std::int64_t state_elements() const { return shape_.state().padded() * shape_.N; }

    void clear(float* panels) const {
        std::memset(panels, 0, size(state_elements() * size_of(DType::f32)));
    }

    void start() {
        if (tensors_.diff_c_n == nullptr) {
            clear(scratch_.diff_cells);
        } else {
            to_panels(state_rows(DType::f32, tensors_.diff_c_n, scratch_.diff_cells));
        }
        if (tensors_.diff_h_n == nullptr) {
            clear(scratch_.diff_hidden);
        } else if (shape_.dtype == DType::f32) {
            to_panels(state_rows(DType::f32, tensors_.diff_h_n, scratch_.diff_hidden));
        } else {
            to_panels(state_rows(shape_.dtype, tensors_.diff_h_n, scratch_.hidden));
            widen_to_f32(reinterpret_cast<const std::uint16_t*>(scratch_.hidden),
                         scratch_.diff_hidden, state_elements());
        }
        if (scratch_.blocks == 0) return;
        std::memset(scratch_.diff_bias, 0,
                    size(scratch_.blocks * kSlots * shape_.state().padded() * 4));
    }

    void gather_rows() {
        const std::int64_t rows = shape_.rows() + shape_.N;
        const std::int64_t row_bytes = shape_.state().width * element_;
        PanelRows src{.dtype = shape_.dtype,
                      .panels = shape_.src(),
                      .rows = shape_.rows(),
                      .plain = const_cast<void*>(tensors_.src),
                      .first = scratch_.src_rows,
                      .panel_rows = shape_.rows()};
        PanelRows states = src;
        states.panels = shape_.state();
        states.panel_rows = rows;
        states.plain = const_cast<void*>(tensors_.dst);
        states.first = scratch_.hidden + (shape_.reverse ? 0 : shape_.N * row_bytes);
        to_panels(src);
        to_panels(states);
        put_first_state();
        states.first = scratch_.states_before(shape_);
        if (tensors_.lengths != nullptr) {
            clear_padding(src, shape_.N, tensors_.lengths);
            clear_padding(states, shape_.N, tensors_.lengths);
        }
        if (shape_.dtype == DType::f32) return;
        pair_rows(src, scratch_.src_pairs);
        pair_rows(states, scratch_.hidden_pairs);
    }

    // Where a sequence begins: before time 0, or in reverse at its end.
    void put_first_state() {
        const Panels state = shape_.state();
        for (std::int64_t n = 0; n < shape_.N; ++n) {
            std::int64_t row = n;
            if (shape_.reverse) {
                row += (tensors_.lengths == nullptr ? shape_.T : tensors_.lengths[n]) * shape_.N;
            }
            PanelRows first{.dtype = shape_.dtype,
                            .panels = state,
                            .rows = 1,
                            .first = scratch_.hidden + row * state.width * element_,
                            .panel_rows = shape_.rows() + shape_.N};
            if (tensors_.h_0 == nullptr) {
                clear_rows(first);
            } else {
                first.plain =
                    static_cast<char*>(const_cast<void*>(tensors_.h_0)) + n * shape_.K * element_;
                to_panels(first);
            }
        }
    }

    void run_step(std::int64_t step) {
        const std::int64_t t = shape_.time(step);
        const bool last = step + 1 == shape_.T;
        const void* const a = last ? nullptr : deltas_at(shape_.time(step + 1));
        const GateFunctions functions = gate_functions(usable_isa(), shape_.cell, shape_.dtype);
        const RnnStep nest(*step_, threads_);
        nest.run(
            [&](const LoopNest::Ranges& ranges, std::int64_t thread) {
                if (a != nullptr) multiply(a, ranges, thread);
            },
            [&](Range rows, std::int64_t panel, std::int64_t thread) {
                DiffGateTile gates = tile_at(step, t, rows, panel);
                if (a != nullptr) gates.product = tile_of(thread);
                gates.next = nest.next_tile(rows, panel, shape_.state(),
                                            shape_.reverse ? shape_.N : -shape_.N);
                functions.backward(gates);
            });
    }

    float* tile_of(std::int64_t thread) const {
        return scratch_.tiles + thread * RnnBackwardScratch::tile_floats(*step_);
    }

    // A block of `a`, the deltas of one step, times the weights.
    void multiply(const void* a, const LoopNest::Ranges& ranges, std::int64_t thread) const {
        step_->run_body({.a = a, .b = tensors_.weights.w_hh_transposed, .c = tile_of(thread)},
                        ranges, nullptr);
    }

    // What the hidden state is multiplied with.
    const char* deltas_at(std::int64_t t) const {
        const Panels state = shape_.state();
        const std::int64_t slot = state.padded() * shape_.rows();
        return scratch_.deltas +
               (first_hidden_slot(shape_.cell) * slot + t * shape_.N * state.width) * element_;
    }

    DiffGateTile tile_at(std::int64_t step, std::int64_t t, Range rows, std::int64_t panel) const {
        const Panels state = shape_.state();
        const Range channels = state.at(panel);
        const std::int64_t in_panel = (panel * shape_.N + rows.begin) * state.width;
        const std::int64_t row = t * shape_.N + rows.begin;
        const std::int64_t plain = row * shape_.K + channels.begin;
        const std::int64_t panel_row = (panel * shape_.rows() + row) * state.width;
        const std::int64_t state_row = (panel * (shape_.rows() + shape_.N) + row) * state.width;
        const std::int64_t block = rows.begin / RnnStep::block_rows(*step_);
        const RnnSaved& saved = tensors_.saved;
        DiffGateTile tile{
            .rows = rows.size(),
            .channels = channels.size(),
            .width = state.width,
            .K = shape_.K,
            .diff_dst = static_cast<const char*>(tensors_.diff_dst) + plain * element_,
            .gates = saved.gates + row * shape_.gates() * shape_.K + channels.begin,
            .hidden = scratch_.states_before(shape_) + state_row * element_,
            .diff_hidden = scratch_.diff_hidden + in_panel,
            .diff_cells = scratch_.diff_cells + in_panel,
            .deltas = scratch_.deltas + panel_row * element_,
            .slot_stride = state.padded() * shape_.rows(),
            .diff_bias = scratch_.diff_bias + block * kSlots * state.padded() + panel * state.width,
            .bias_stride = state.padded()};
        if (tensors_.lengths != nullptr) tile.valid = {tensors_.lengths + rows.begin, t};
        if (saved.hidden_n != nullptr) tile.hidden_n = saved.hidden_n + plain;
        if (saved.cells == nullptr) return tile;
        tile.cells = saved.cells + plain;
        const std::int64_t in_state = rows.begin * shape_.K + channels.begin;
        if (step > 0) {
            tile.last_cells = saved.cells + shape_.time(step - 1) * shape_.N * shape_.K + in_state;
        } else if (tensors_.c_0 != nullptr) {
            tile.last_cells = tensors_.c_0 + in_state;
        }
        return tile;
    }

    void pass_to_first_state() {
        const std::int64_t width = shape_.state().width;
        const char* const a = deltas_at(shape_.time(0));
        RnnStep(*step_, threads_)
            .run([&](const LoopNest::Ranges& ranges,
                     std::int64_t thread) { multiply(a, ranges, thread); },
                 [&](Range rows, std::int64_t panel, std::int64_t thread) {
                     const float* const tile = tile_of(thread);
                     float* const to =
                         scratch_.diff_hidden + (panel * shape_.N + rows.begin) * width;
                     for (std::int64_t i = 0; i < rows.size() * width; ++i) to[i] += tile[i];
                 });
    }

    void finish() {
        if (shape_.cell == RnnCell::lstm) {
            from_panels(state_rows(DType::f32, tensors_.diff_c_0, scratch_.diff_cells));
        }
        void* panels = scratch_.diff_hidden;
        if (shape_.dtype != DType::f32) {
            panels = scratch_.hidden;
            round_to_bf16(scratch_.diff_hidden, reinterpret_cast<std::uint16_t*>(scratch_.hidden),
                          state_elements());
        }
        from_panels(state_rows(shape_.dtype, tensors_.diff_h_0, panels));
    }

    const Rnn& rnn_;
    const RnnShape& shape_;
    const RnnBackward& tensors_;
    int threads_;
    std::int64_t element_;
    Rnn::Plan step_;
    WorkspacePool::Lease lease_;
    RnnBackwardScratch scratch_;
};

void Rnn::backward(const RnnBackward& tensors) const { RnnBackwardPass(*this, tensors).run(); }

std::int64_t Rnn::backward_scratch_bytes() const {
    const Plan step = RnnBackwardPass::step_plan(*this);
    return RnnBackwardScratch(shape_, step.get(), num_threads(), nullptr).bytes;
}

}  // namespace dlprim
