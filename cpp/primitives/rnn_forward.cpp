#include <algorithm>
#include <cstring>

#include "brgemm/isa.h"
#include "primitives/pack.h"
#include "primitives/rnn.h"
#include "primitives/rnn_gates.h"
#include "primitives/rnn_scratch.h"
#include "primitives/rnn_step.h"

namespace dlprim {

class RnnForwardPass {
public:
    RnnForwardPass(const Rnn& rnn, const RnnForward& tensors)
        : rnn_(rnn),
          shape_(rnn.shape()),
          tensors_(tensors),
          threads_(num_threads()),
          element_(size_of(shape_.dtype)),
          state_elements_(shape_.state().padded() * shape_.N),
          scratch_(rnn.workspaces_, bytes(rnn, tensors.saved.gates != nullptr, threads_)) {
        ScratchCutter cutter(scratch_.data());
        src_ = cutter.take(shape_.rows() * shape_.src().padded() * element_);
        for (char*& hidden : hidden_) hidden = cutter.take(state_elements_ * element_);
        state_ = cutter.take_floats(state_elements_);
        if (tensors.saved.gates == nullptr) projection_ = cutter.take_floats(rows_floats(rnn));
        tiles_ = cutter.take_floats(0);
    }

    static std::int64_t bytes(const Rnn& rnn, bool training, int threads) {
        const RnnShape& shape = rnn.shape();
        const std::int64_t element = size_of(shape.dtype);
        const std::int64_t state = shape.state().padded() * shape.N;
        ScratchCutter cutter(nullptr);
        cutter.take(shape.rows() * shape.src().padded() * element);
        cutter.take(state * element);
        cutter.take(state * element);
        cutter.take_floats(state);
        if (!training) cutter.take_floats(rows_floats(rnn));
        if (shape.rows() > 0) {
            cutter.take_floats(threads * RnnStep::tile_floats(*rnn.plan(RnnPass::recurrence)));
        }
        return cutter.bytes();
    }

    void run() {
        start();
        const std::int64_t together = rnn_.steps_together();
        for (std::int64_t step = 0; step < shape_.T && shape_.N > 0; step += together) {
            run_steps({step, std::min(step + together, shape_.T)});
        }
        from_panels(panel_rows(shape_.dtype, tensors_.h_n, hidden_[0]));
        if (shape_.cell == RnnCell::lstm) {
            from_panels(panel_rows(DType::f32, tensors_.c_n, state_));
        }
    }

private:
    static std::int64_t rows_floats(const Rnn& rnn) {
        return rnn.steps_together() * rnn.shape().N * rnn.shape().gates() * rnn.shape().K;
    }

    PanelRows panel_rows(DType dtype, const void* plain, void* panels) const {
        return {.dtype = dtype,
                .panels = shape_.state(),
                .rows = shape_.N,
                .plain = const_cast<void*>(plain),
                .first = panels,
                .panel_rows = shape_.N};
    }

    void set_state(DType dtype, const void* plain, void* panels) const {
        if (plain != nullptr) {
            to_panels(panel_rows(dtype, plain, panels));
        } else {
            std::memset(panels, 0, static_cast<std::size_t>(state_elements_ * size_of(dtype)));
        }
    }

    void start() {
        set_state(shape_.dtype, tensors_.h_0, hidden_[0]);
        if (shape_.cell == RnnCell::lstm) {
            set_state(DType::f32, tensors_.c_0, state_);
        } else if (shape_.dtype == DType::f32) {
            set_state(DType::f32, tensors_.h_0, state_);
        } else {
            widen_to_f32(reinterpret_cast<const std::uint16_t*>(hidden_[0]), state_,
                         state_elements_);
        }
        if (shape_.rows() == 0) return;
        to_panels({.dtype = shape_.dtype,
                   .panels = shape_.src(),
                   .rows = shape_.rows(),
                   .plain = const_cast<void*>(tensors_.src),
                   .first = src_,
                   .panel_rows = shape_.rows()});
    }

    void run_steps(Range steps) {
        const std::int64_t first = std::min(shape_.time(steps.begin), shape_.time(steps.end - 1));
        const std::int64_t row_floats = shape_.gates() * shape_.K;
        const bool training = tensors_.saved.gates != nullptr;
        float* const projection =
            training ? tensors_.saved.gates + first * shape_.N * row_floats : projection_;
        rnn_.plan(RnnPass::projection, steps.size() * shape_.N)
            ->run({.a = src_ + first * shape_.N * shape_.src().width * element_,
                   .b = tensors_.weights.w_ih,
                   .c = projection,
                   .bias = tensors_.weights.bias},
                  nullptr, threads_);
        const Rnn::Plan plan = rnn_.plan(RnnPass::recurrence);
        const RnnStep nest(*plan, tiles_, threads_);
        for (std::int64_t step = steps.begin; step < steps.end; ++step) {
            const std::int64_t t = shape_.time(step);
            const float* const inputs = projection + (t - first) * shape_.N * row_floats;
            const bool from_zero = step == 0 && tensors_.h_0 == nullptr;
            if (from_zero) std::fill_n(tiles_, RnnStep::tile_floats(*plan), 0.0F);
            nest.run(from_zero ? nullptr : hidden_[0], tensors_.weights.w_hh,
                     [&](Range rows, std::int64_t panel, const float* tile) {
                         GateTile gates = tile_at(t, rows, panel);
                         gates.product = from_zero ? tiles_ : tile;
                         gates.next = nest.next_tile(rows, panel, shape_.state(),
                                                     shape_.reverse ? -shape_.N : shape_.N);
                         gates.product_rows = RnnStep::block_rows(*plan);
                         gates.projection =
                             inputs + rows.begin * row_floats + shape_.state().at(panel).begin;
                         functions_.forward(gates);
                     });
            std::swap(hidden_[0], hidden_[1]);
        }
    }

    GateTile tile_at(std::int64_t t, Range rows, std::int64_t panel) const {
        const Panels state = shape_.state();
        const Range channels = state.at(panel);
        const std::int64_t in_panel = (panel * shape_.N + rows.begin) * state.width;
        const std::int64_t row = t * shape_.N + rows.begin;
        const std::int64_t plain = row * shape_.K + channels.begin;
        const RnnSaved& saved = tensors_.saved;
        GateTile tile{.rows = rows.size(),
                      .channels = channels.size(),
                      .width = state.width,
                      .K = shape_.K,
                      .hidden_bias = tensors_.weights.bias + 3 * shape_.K + channels.begin,
                      .state = state_ + in_panel,
                      .hidden = hidden_[0] + in_panel * element_,
                      .next_hidden = hidden_[1] + in_panel * element_,
                      .dst = static_cast<char*>(tensors_.dst) + plain * element_};
        if (tensors_.lengths != nullptr) tile.valid = {tensors_.lengths + rows.begin, t};
        if (saved.gates == nullptr) return tile;
        tile.gates = saved.gates + row * shape_.gates() * shape_.K + channels.begin;
        if (saved.cells != nullptr) tile.cells = saved.cells + plain;
        if (saved.hidden_n != nullptr) tile.hidden_n = saved.hidden_n + plain;
        return tile;
    }

    const Rnn& rnn_;
    const RnnShape& shape_;
    const RnnForward& tensors_;
    int threads_;
    std::int64_t element_;
    std::int64_t state_elements_;
    WorkspacePool::Lease scratch_;
    GateFunctions functions_ = gate_functions(usable_isa(), shape_.cell, shape_.dtype);
    char* src_ = nullptr;
    std::array<char*, 2> hidden_ = {};  // now and after the step, panels
    float* state_ = nullptr;            // c of an LSTM, h of a GRU, panels
    float* projection_ = nullptr;
    float* tiles_ = nullptr;
};

void Rnn::forward(const RnnForward& tensors) const { RnnForwardPass(*this, tensors).run(); }

std::int64_t Rnn::forward_scratch_bytes(bool training) const {
    return RnnForwardPass::bytes(*this, training, num_threads());
}

}  // namespace dlprim
