#include <algorithm>
#include <cstring>

#include "jit/isa.h"
#include "primitives/nest/contraction_plan.h"
#include "primitives/rnn/rnn.h"
#include "primitives/rnn/rnn_gates.h"
#include "primitives/rnn/rnn_scratch.h"
#include "primitives/rnn/rnn_step.h"
#include "primitives/tensor/pack.h"

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
          slot_floats_(rnn.sum_rows() * shape_.state().width),
          scratch_(*rnn.workspaces_, bytes(rnn)),
          at_(shape_, slot_floats_, scratch_.data()) {}

    static std::int64_t bytes(const Rnn& rnn) {
        const RnnShape& shape = rnn.shape();
        return Scratch(shape, rnn.sum_rows() * shape.state().width, nullptr).bytes;
    }

    void run() {
        start();
        const std::int64_t together = rnn_.steps_together();
        for (std::int64_t step = 0; step < shape_.T && shape_.N > 0; step += together) {
            run_steps({step, std::min(step + together, shape_.T)});
        }
        from_panels(panel_rows(shape_.dtype, tensors_.h_n, at_.hidden[0]));
        if (shape_.cell == RnnCell::lstm) {
            from_panels(panel_rows(DType::f32, tensors_.c_n, at_.state));
        }
    }

private:
    struct Scratch {
        Scratch(const RnnShape& shape, std::int64_t slot_floats, char* base) {
            const std::int64_t element = size_of(shape.dtype);
            const std::int64_t state_elements = shape.state().padded() * shape.N;
            ScratchCutter cutter(base);
            src = cutter.take(shape.rows() * shape.src().padded() * element);
            for (char*& each : hidden) each = cutter.take(state_elements * element);
            state = cutter.take_floats(state_elements);
            sums = cutter.take_floats(shape.state().count() * kSlots * slot_floats);
            bytes = cutter.bytes();
        }

        char* src = nullptr;               // panels
        std::array<char*, 2> hidden = {};  // now and after the step, panels
        float* state = nullptr;            // c of an LSTM, h of a GRU, panels
        float* sums = nullptr;             // rnn_contraction.h
        std::int64_t bytes = 0;
    };

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
        set_state(shape_.dtype, tensors_.h_0, at_.hidden[0]);
        if (shape_.cell == RnnCell::lstm) {
            set_state(DType::f32, tensors_.c_0, at_.state);
        } else if (shape_.dtype == DType::f32) {
            set_state(DType::f32, tensors_.h_0, at_.state);
        } else {
            widen_to_f32(reinterpret_cast<const std::uint16_t*>(at_.hidden[0]), at_.state,
                         state_elements_);
        }
        if (shape_.rows() == 0) return;
        to_panels({.dtype = shape_.dtype,
                   .panels = shape_.src(),
                   .rows = shape_.rows(),
                   .plain = const_cast<void*>(tensors_.src),
                   .first = at_.src,
                   .panel_rows = shape_.rows()});
    }

    void run_steps(Range steps) {
        const std::int64_t first = std::min(shape_.time(steps.begin), shape_.time(steps.end - 1));
        rnn_.plan(RnnPass::projection, steps.size() * shape_.N)
            ->run({.a = at_.src + first * shape_.N * shape_.src().width * element_,
                   .b = tensors_.weights.w_ih,
                   .c = at_.sums,
                   .bias = tensors_.weights.bias},
                  nullptr, threads_);
        const Rnn::Plan plan = rnn_.plan(RnnPass::recurrence);
        for (std::int64_t step = steps.begin; step < steps.end; ++step) {
            const std::int64_t row = (shape_.time(step) - first) * shape_.N;
            run_step(*plan, step, at_.sums + row * shape_.state().width);
            std::swap(at_.hidden[0], at_.hidden[1]);
        }
    }

    // `sums` are those of the first row of the step.
    void run_step(const ContractionPlan& plan, std::int64_t step, float* sums) {
        const std::int64_t t = shape_.time(step);
        const bool from_zero = step == 0 && tensors_.h_0 == nullptr;
        const std::int64_t step_rows = shape_.reverse ? -shape_.N : shape_.N;
        const RnnStep nest(plan, threads_);
        nest.run(
            [&](const LoopNest::Ranges& ranges, std::int64_t) {
                if (from_zero) {
                    clear_product(ranges, sums);
                } else {
                    multiply(plan, ranges, sums);
                }
            },
            [&](Range rows, std::int64_t panel, std::int64_t) {
                GateTile gates = tile_at(t, rows, panel);
                gates.sums = block_of(rows, panel, sums);
                gates.slot_stride = slot_floats_;
                const NextTile next = nest.next_tile(rows, panel, shape_.state(), step_rows);
                const std::int64_t next_panel = next.channels / shape_.state().width;
                gates.next_sums =
                    next.rows * shape_.state().width + next_panel * kSlots * slot_floats_;
                functions_.forward(gates);
            });
    }

    float* block_of(Range rows, std::int64_t panel, float* sums) const {
        return sums + panel * kSlots * slot_floats_ + rows.begin * shape_.state().width;
    }

    // The n of a GRU keeps its product with the hidden state apart from that with src.
    bool is_apart(const LoopNest::Ranges& ranges) const {
        return shape_.cell == RnnCell::gru && ranges[kGatesLoop].begin == 2;
    }

    void multiply(const ContractionPlan& plan, const LoopNest::Ranges& ranges, float* sums) const {
        const bool apart = is_apart(ranges);
        plan.run_body({.a = at_.hidden[0],
                       .b = tensors_.weights.w_hh,
                       .c = sums + (apart ? slot_floats_ : 0),
                       .accumulate = !apart},
                      ranges, nullptr);
    }

    // Instead of the product with a hidden state of zero.
    void clear_product(const LoopNest::Ranges& ranges, float* sums) const {
        if (!is_apart(ranges)) return;
        const Range rows = ranges[kRowsLoop];
        std::fill_n(block_of(rows, ranges[kChannelsLoop].begin, sums) + 3 * slot_floats_,
                    rows.size() * shape_.state().width, 0.0F);
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
                      .state = at_.state + in_panel,
                      .hidden = at_.hidden[0] + in_panel * element_,
                      .next_hidden = at_.hidden[1] + in_panel * element_,
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
    std::int64_t slot_floats_;
    WorkspacePool::Lease scratch_;
    Scratch at_;
    GateFunctions functions_ = gate_functions(usable_isa(), shape_.cell, shape_.dtype);
};

void Rnn::forward(const RnnForward& tensors) const { RnnForwardPass(*this, tensors).run(); }

std::int64_t Rnn::forward_scratch_bytes() const { return RnnForwardPass::bytes(*this); }

}  // namespace dlprim
