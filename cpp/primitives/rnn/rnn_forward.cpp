#include <algorithm>
#include <array>

#include "primitives/nest/contraction_plan.h"
#include "primitives/rnn/rnn_steps.h"

namespace dlprim {
namespace {

// Without a base only `bytes` counts.
struct ForwardScratch {
    ForwardScratch(const RnnShape& shape, char* base) {
        const std::int64_t element = size_of(shape.dtype);
        const std::int64_t state_elements = shape.state().padded() * shape.N;
        ScratchCutter cutter(base);
        src = cutter.take(shape.rows() * shape.src().padded() * element);
        for (char*& each : hidden) each = cutter.take(state_elements * element);
        reset = cutter.take(shape.resets_before() ? state_elements * element : 0);
        state = cutter.take_floats(shape.has_state() ? state_elements : 0);
        sums = cutter.take_floats(shape.sums() * shape.state().padded() * sum_rows(shape));
        bytes = cutter.bytes();
    }

    char* src = nullptr;               // panels
    std::array<char*, 2> hidden = {};  // now and after the step, panels
    char* reset = nullptr;             // r * h of a GRU that resets before the product, panels
    float* state = nullptr;            // c of an LSTM, h of a GRU, panels
    float* sums = nullptr;             // rnn_pass.h
    std::int64_t bytes = 0;
};

class ForwardSteps : RnnSteps {
public:
    ForwardSteps(const Rnn& rnn, const RnnForward& tensors)
        : RnnSteps(rnn, tensors.lengths, false),
          tensors_(tensors),
          lease_(pool_, ForwardScratch(shape_, nullptr).bytes),
          at_(shape_, lease_.data()) {}

    void run() {
        const bool is_lstm = shape_.cell == RnnCell::lstm;
        load_state(shape_.dtype, tensors_.h_0, at_.hidden[0]);
        if (is_lstm) {
            load_state(DType::f32, tensors_.c_0, at_.state);
        } else if (shape_.has_state()) {
            load_state(tensors_.h_0, at_.hidden[0], at_.state);
        }
        if (shape_.K < state_.padded()) {
            clear(at_.hidden[1]);
            if (shape_.resets_before()) clear(at_.reset);
        }
        if (shape_.rows() > 0) run_all_steps();
        reorders_.store_state.run(at_.hidden[0], tensors_.h_n);
        if (is_lstm) reorders_.store_floats.run(at_.state, tensors_.c_n);
    }

private:
    void clear(char* panels) const {
        std::memset(panels, 0, static_cast<std::size_t>(state_elements_ * element_));
    }

    void run_all_steps() {
        reorders_.src.run(tensors_.src, at_.src);
        const std::int64_t together = steps_together(shape_);
        for (std::int64_t step = 0; step < shape_.T; step += together) {
            run_steps({step, std::min(step + together, shape_.T)});
        }
    }

    void run_steps(Range steps) {
        const std::int64_t first = std::min(shape_.time(steps.begin), shape_.time(steps.end - 1));
        pass(RnnPass::projection)
            .plan(steps.size() * shape_.N)
            ->run({.a = at_.src + first * shape_.N * shape_.src().width * element_,
                   .b = tensors_.weights.w_ih,
                   .c = at_.sums,
                   .bias = tensors_.weights.bias},
                  nullptr, threads_);
        for (std::int64_t step = steps.begin; step < steps.end; ++step) {
            const std::int64_t row = (shape_.time(step) - first) * shape_.N;
            run_one_step(step, at_.sums + row * state_.width);
            std::swap(at_.hidden[0], at_.hidden[1]);
        }
    }

    // `sums` are those of the first row of the step.
    void run_one_step(std::int64_t step, float* sums) {
        const std::int64_t t = shape_.time(step);
        const bool from_zero = step == 0 && tensors_.h_0 == nullptr;
        if (shape_.resets_before() && !from_zero) {
            run_product(first_, false, sums,
                        [&](const StepTile& tile) { reset_state(tile, sums); });
        }
        run_product(shape_.resets_before() ? last_ : first_, from_zero, sums,
                    [&](const StepTile& tile) { apply_gates(t, tile, sums); });
    }

    // The hidden state, or what a GRU resets it to, times the weights of gates from one on.
    struct Product {
        Plan plan;
        const ContractionPlan* shared = nullptr;  // what threads run of it
        std::int64_t gate = 0;
        const char* hidden = nullptr;  // and sums, for which the calls were found
        float* sums = nullptr;
        StepCalls* calls = nullptr;  // once they are found
    };

    template <class Finish>
    void run_product(Product& product, bool from_zero, float* sums, const Finish& finish) {
        const char* const hidden = product.gate > 0 ? at_.reset : at_.hidden[0];
        if (product.shared == nullptr) product.shared = &product.plan->for_threads(threads_);
        if (!from_zero && is_repeated(*product.shared)) {
            if (product.calls == nullptr) find_calls(product, hidden, sums);
            if (product.calls->is_whole()) {
                product.calls->run(hidden - product.hidden, (sums - product.sums) * 4, finish);
                return;
            }
        }
        run_step(
            *product.shared,
            [&](const LoopNest::Ranges& ranges, const StepTile& tile, const Worker& worker) {
                if (from_zero) {
                    clear_product(ranges, tile, sums);
                } else {
                    product.shared->run_body(operands_of(product.gate, ranges, hidden, sums),
                                             ranges, nullptr, worker.tiles);
                }
            },
            [&](const StepTile& tile, std::int64_t) { finish(tile); });
    }

    // Steps of few bodies on one thread.
    bool is_repeated(const ContractionPlan& plan) const {
        return (threads_ == 1 || plan.nest().tasks() == 1) && shape_.T > 2 &&
               shape_.N <= kMostRepeatedRows;
    }

    void find_calls(Product& product, const char* hidden, float* sums) const {
        static thread_local std::array<StepCalls, 2> lists;  // of h and of r * h; runs do not nest
        product.hidden = hidden;
        product.sums = sums;
        product.calls = &lists[product.gate > 0 ? 1 : 0];
        product.calls->find(*product.shared, state_.width, [&](const LoopNest::Ranges& ranges) {
            return operands_of(product.gate, ranges, hidden, sums);
        });
    }

    template <class Float>
    Float* block_of(std::int64_t row, std::int64_t panel, Float* sums) const {
        return sums + panel * shape_.sums() * slot_floats_ + row * state_.width;
    }

    // The n of a GRU keeps its product with the hidden state apart from that with src.
    bool is_apart(const LoopNest::Ranges& ranges) const {
        return shape_.keeps_parts() && ranges[kGatesLoop].begin == kLastGate;
    }

    ContractionOperands operands_of(std::int64_t gate, const LoopNest::Ranges& ranges,
                                    const char* hidden, float* sums) const {
        const bool apart = is_apart(ranges);
        const std::int64_t weights = gate * state_.padded() * state_.width * element_;
        return {.a = hidden,
                .b = static_cast<const char*>(tensors_.weights.w_hh) + weights,
                .c = sums + (apart ? 1 : gate) * slot_floats_,
                .accumulate = !apart};
    }

    // Instead of the product with a hidden state of zero.
    void clear_product(const LoopNest::Ranges& ranges, const StepTile& tile, float* sums) const {
        if (!is_apart(ranges)) return;
        for (std::int64_t row = tile.rows.begin; row < tile.rows.end; ++row) {
            std::fill_n(block_of(row, tile.panel, sums) + 3 * slot_floats_ + tile.columns.begin,
                        tile.columns.size(), 0.0F);
        }
    }

    void apply_gates(std::int64_t t, const StepTile& tile, const float* sums) const {
        const std::int64_t channels = columns_of(tile);
        if (channels == 0) return;
        const bool saves = tensors_.saved.gates != nullptr;
        const NextTile next =
            next_tile(tile.rows, tile.panel, shape_.reverse ? -shape_.N : shape_.N);
        const std::int64_t first = tile.columns.begin;
        for_runs(tile.rows, t, [&](Range run, bool rests) {
            const std::int64_t panel = tile.panel;
            const std::int64_t in_panel = panel_offset(shape_.N, run.begin, panel) + first;
            const std::int64_t row = t * shape_.N + run.begin;
            TileArgs args(run, channels);
            put_sums(args, run.begin + next.rows, panel + next.panels, sums + first);
            put_sums(args, run.begin, panel, sums + first);
            put_columns(args, panel, first);
            if (shape_.has_state()) args.put(at_.state + in_panel, panel_floats_);
            args.put(at_.hidden[0] + in_panel * element_, panel_elements_);
            if (shape_.has_state()) args.put(at_.state + in_panel, panel_floats_);
            args.put(at_.hidden[1] + in_panel * element_, panel_elements_);
            args.put(
                static_cast<char*>(tensors_.dst) + (plain_offset(row, panel) + first) * element_,
                shape_.K * element_);
            if (saves) put_saved(args, tensors_.saved, row, panel, first);
            gates_.of(saves ? GatePass::training : GatePass::inference, rests)(args.get());
        });
    }

    void put_sums(TileArgs& args, std::int64_t row, std::int64_t panel, const float* sums) const {
        const float* const first = block_of(row, panel, sums);
        for (std::int64_t slot = shape_.resets_before() ? 1 : 0; slot < shape_.sums(); ++slot) {
            args.put(first + slot * slot_floats_, panel_floats_);
        }
    }

    void put_columns(TileArgs& args, std::int64_t panel, std::int64_t column) const {
        if (shape_.keeps_parts()) {
            const std::int64_t row = 3 * shape_.vectors().channels;
            args.put(tensors_.weights.bias + row + panel * state_.width + column, 0);
        }
        if (!shape_.form.peepholes) return;
        for (std::int64_t gate = 0; gate < 3; ++gate) {
            args.put(tensors_.peepholes + plain_offset(gate, panel) + column, 0);
        }
    }

    void reset_state(const StepTile& tile, const float* sums) const {
        const std::int64_t channels = columns_of(tile), column = tile.columns.begin;
        if (channels == 0) return;
        const std::int64_t in_panel = panel_offset(shape_.N, tile.rows.begin, tile.panel) + column;
        TileArgs args(tile.rows, channels);
        args.put(block_of(tile.rows.begin, tile.panel, sums) + column, panel_floats_);
        args.put(at_.state + in_panel, panel_floats_);
        args.put(at_.reset + in_panel * element_, panel_elements_);
        gates_.of(GatePass::reset, false)(args.get());
    }

    static constexpr std::int64_t kLastGate = 2;  // n of a GRU
    // Above, a walk through the nest is nothing beside what its bodies take.
    static constexpr std::int64_t kMostRepeatedRows = 64;

    const RnnForward& tensors_;
    Product first_{.plan = pass(RnnPass::recurrence).typical_plan()};
    // Of a GRU that resets before the product: that of n.
    Product last_{.plan = shape_.resets_before() ? pass(RnnPass::recurrence).plan(1) : nullptr,
                  .gate = kLastGate};
    const std::int64_t slot_floats_ = sum_rows(shape_) * state_.width;
    const WorkspacePool::Lease lease_;
    ForwardScratch at_;
};

}  // namespace

void Rnn::forward(const RnnForward& tensors) const {
    if (tensors.saved.gates != nullptr) require_backward(shape_);
    ForwardSteps(*this, tensors).run();
}

std::int64_t Rnn::forward_scratch_bytes() const { return ForwardScratch(shape_, nullptr).bytes; }

}  // namespace dlprim
