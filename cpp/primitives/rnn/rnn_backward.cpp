#include <algorithm>

#include "primitives/nest/contraction_plan.h"
#include "primitives/nest/fixed_parts.h"
#include "primitives/rnn/rnn_steps.h"

namespace dlprim {
namespace {

// The gradients of all pre-activations, which three products read, the other operands of the
// gradients of the weights, and what goes from step to step. Without a base only `bytes` counts.
struct BackwardScratch {
    BackwardScratch(const RnnShape& shape, const ContractionPlan& recurrence, int threads,
                    char* base) {
        const std::int64_t element = size_of(shape.dtype);
        const std::int64_t state = shape.state().padded(), src = shape.src().padded();
        tile_rows = dlprim::tile_rows(recurrence);
        ScratchCutter cutter(base);
        deltas = cutter.take(kSlots * state * shape.rows() * element);
        src_rows = cutter.take(src * shape.rows() * element);
        hidden = cutter.take(state * (shape.rows() + shape.N) * element);
        const std::int64_t step = shape.N * shape.state().width * element;
        states = base == nullptr || !shape.reverse ? hidden : hidden + step;
        summed_deltas = deltas;
        summed_src = src_rows;
        summed_states = states;
        if (shape.dtype != DType::f32) {
            summed_deltas = cutter.take(kSlots * state * summed_rows(shape) * element);
            summed_src = cutter.take(src * summed_rows(shape) * element);
            summed_states = cutter.take(state * summed_rows(shape) * element);
        }
        diff_hidden = cutter.take_floats(state * shape.N);
        diff_cells = cutter.take_floats(state * shape.N);
        diff_bias = {.count = Blocks{shape.N, tile_rows}.count(), .distance = kSlots * state};
        diff_bias.first = cutter.take_floats(diff_bias.count * diff_bias.distance);
        tile_floats = tile_rows * recurrence.contraction().ldc;
        tiles = cutter.take_floats(threads * tile_floats);
        bytes = cutter.bytes();
    }

    char* deltas = nullptr;    // [slot][panel][row]
    char* src_rows = nullptr;  // panels
    // Panels: the initial state and those after every step, in the order of time, and of these the
    // state before every step.
    char* hidden = nullptr;
    char* states = nullptr;
    // What the gradients of the weights sum: these, or in bfloat16 pairs of their rows.
    char* summed_deltas = nullptr;
    char* summed_src = nullptr;
    char* summed_states = nullptr;
    float* diff_hidden = nullptr;  // panels of N rows
    float* diff_cells = nullptr;
    SumCopies diff_bias = {};  // [slot][padded K], one for each block of rows
    float* tiles = nullptr;    // one for each thread
    std::int64_t tile_rows = 0;
    std::int64_t tile_floats = 0;
    std::int64_t bytes = 0;
};

// Without steps the gradients of the states pass through, and the sums are empty.
void backward_without_steps(const RnnShape& shape, const RnnBackward& tensors) {
    const auto pass = [&](const void* from, void* to, DType dtype) {
        const auto bytes = static_cast<std::size_t>(shape.N * shape.K * size_of(dtype));
        if (from == nullptr) {
            std::memset(to, 0, bytes);
        } else {
            std::memcpy(to, from, bytes);
        }
    };
    pass(tensors.diff_h_n, tensors.diff_h_0, shape.dtype);
    if (shape.cell == RnnCell::lstm) pass(tensors.diff_c_n, tensors.diff_c_0, DType::f32);
    const std::int64_t channels = shape.gates() * shape.K;
    std::fill_n(tensors.diff_w_ih, channels * shape.C, 0.0F);
    std::fill_n(tensors.diff_w_hh, channels * shape.K, 0.0F);
    std::fill_n(tensors.diff_b_ih, channels, 0.0F);
    std::fill_n(tensors.diff_b_hh, channels, 0.0F);
}

class BackwardSteps : RnnSteps {
public:
    BackwardSteps(const Rnn& rnn, const RnnBackward& tensors)
        : RnnSteps(rnn, tensors.lengths),
          tensors_(tensors),
          lease_(pool_, BackwardScratch(shape_, *recurrence_, threads_, nullptr).bytes),
          at_(shape_, *recurrence_, threads_, lease_.data()) {}

    void run() {
        load_state(DType::f32, tensors_.diff_c_n, at_.diff_cells);
        load_state(tensors_.diff_h_n, at_.hidden, at_.diff_hidden);
        std::fill_n(at_.diff_bias.first, at_.diff_bias.count * at_.diff_bias.distance, 0.0F);
        gather_rows();
        for (std::int64_t step = shape_.T; step-- > 0;) run_one_step(step);
        pass_to_first_state();
        pass(RnnPass::diff_src)
            .typical_plan()
            ->run({.a = at_.deltas, .b = tensors_.weights.w_ih_transposed, .c = tensors_.diff_src},
                  nullptr, threads_);
        sum_weights();
        sum_biases();
        if (shape_.cell == RnnCell::lstm) {
            store_state(DType::f32, at_.diff_cells, tensors_.diff_c_0);
        }
        store_state(at_.diff_hidden, at_.hidden, tensors_.diff_h_0);
    }

private:
    void gather_rows() {
        const std::int64_t rows = shape_.rows() + shape_.N;
        const std::int64_t step_bytes = shape_.N * state_.width * element_;
        const PanelRows src = src_rows(tensors_.src, at_.src_rows);
        PanelRows states{.dtype = shape_.dtype,
                         .panels = state_,
                         .rows = shape_.rows(),
                         .plain = const_cast<void*>(tensors_.dst),
                         .first = at_.hidden + (shape_.reverse ? 0 : step_bytes),
                         .panel_rows = rows};
        to_panels(src);
        to_panels(states);
        put_first_state();
        states.first = at_.states;
        if (lengths_ != nullptr) {
            clear_padding(src, shape_.N, lengths_);
            clear_padding(states, shape_.N, lengths_);
        }
        if (!pairs_) return;
        pairs_->src.run(src.first, at_.summed_src);
        pairs_->states.run(states.first, at_.summed_states);
    }

    // Where a sequence begins: before time 0, or in reverse at its end.
    void put_first_state() {
        for (std::int64_t n = 0; n < shape_.N; ++n) {
            std::int64_t row = n;
            if (shape_.reverse) row += (lengths_ == nullptr ? shape_.T : lengths_[n]) * shape_.N;
            PanelRows first{.dtype = shape_.dtype,
                            .panels = state_,
                            .rows = 1,
                            .first = at_.hidden + row * state_.width * element_,
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

    void run_one_step(std::int64_t step) {
        const std::int64_t t = shape_.time(step);
        const bool last = step + 1 == shape_.T;
        const void* const later = last ? nullptr : deltas_at(shape_.time(step + 1));
        run_step(
            *recurrence_,
            [&](const LoopNest::Ranges& ranges, std::int64_t thread) {
                if (!last) multiply(later, ranges, thread);
            },
            [&](Range rows, std::int64_t panel, std::int64_t thread) {
                DiffGateTile tile = tile_at(step, t, rows, panel);
                if (!last) tile.product = product_of(thread);
                tile.next = next_tile(rows, panel, shape_.reverse ? shape_.N : -shape_.N);
                gates_.backward(tile);
            });
    }

    void pass_to_first_state() {
        const void* const deltas = deltas_at(shape_.time(0));
        run_step(
            *recurrence_,
            [&](const LoopNest::Ranges& ranges, std::int64_t thread) {
                multiply(deltas, ranges, thread);
            },
            [&](Range rows, std::int64_t panel, std::int64_t thread) {
                const float* const product = product_of(thread);
                float* const to = at_.diff_hidden + (panel * shape_.N + rows.begin) * state_.width;
                for (std::int64_t i = 0; i < rows.size() * state_.width; ++i) to[i] += product[i];
            });
    }

    float* product_of(std::int64_t thread) const { return at_.tiles + thread * at_.tile_floats; }

    // A tile of the deltas of one step times the weights.
    void multiply(const void* deltas, const LoopNest::Ranges& ranges, std::int64_t thread) const {
        recurrence_->run_body(
            {.a = deltas, .b = tensors_.weights.w_hh_transposed, .c = product_of(thread)}, ranges,
            nullptr);
    }

    // What the hidden state is multiplied with.
    const char* deltas_at(std::int64_t t) const {
        const std::int64_t slot = state_.padded() * shape_.rows();
        return at_.deltas +
               (first_hidden_slot(shape_.cell) * slot + t * shape_.N * state_.width) * element_;
    }

    DiffGateTile tile_at(std::int64_t step, std::int64_t t, Range rows, std::int64_t panel) const {
        const Range channels = state_.at(panel);
        const std::int64_t in_panel = (panel * shape_.N + rows.begin) * state_.width;
        const std::int64_t row = t * shape_.N + rows.begin;
        const std::int64_t plain = row * shape_.K + channels.begin;
        const std::int64_t panel_row = (panel * shape_.rows() + row) * state_.width;
        const std::int64_t state_row = (panel * (shape_.rows() + shape_.N) + row) * state_.width;
        const RnnSaved& saved = tensors_.saved;
        DiffGateTile tile{
            .rows = rows.size(),
            .channels = channels.size(),
            .width = state_.width,
            .K = shape_.K,
            .diff_dst = static_cast<const char*>(tensors_.diff_dst) + plain * element_,
            .gates = saved.gates + row * shape_.gates() * shape_.K + channels.begin,
            .hidden = at_.states + state_row * element_,
            .diff_hidden = at_.diff_hidden + in_panel,
            .diff_cells = at_.diff_cells + in_panel,
            .deltas = at_.deltas + panel_row * element_,
            .slot_stride = state_.padded() * shape_.rows(),
            .diff_bias = at_.diff_bias.copy(rows.begin / at_.tile_rows) + panel * state_.width,
            .bias_stride = state_.padded()};
        if (lengths_ != nullptr) tile.valid = {lengths_ + rows.begin, t};
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

    void sum_weights() const {
        if (pairs_) pairs_->deltas.run(at_.deltas, at_.summed_deltas);
        const Plan w_ih = pass(RnnPass::diff_w_ih).typical_plan();
        const Plan w_hh = pass(RnnPass::diff_w_hh).typical_plan();
        const std::int64_t slot = state_.padded() * summed_rows(shape_) * element_;
        for (std::int64_t gate = 0; gate < shape_.gates(); ++gate) {
            const auto index = static_cast<std::size_t>(gate);
            w_ih->run({.a = at_.summed_deltas + src_slots(shape_.cell)[index] * slot,
                       .b = at_.summed_src,
                       .c = tensors_.diff_w_ih + gate * shape_.K * shape_.C},
                      nullptr, threads_);
            w_hh->run({.a = at_.summed_deltas + hidden_slots(shape_.cell)[index] * slot,
                       .b = at_.summed_states,
                       .c = tensors_.diff_w_hh + gate * shape_.K * shape_.K},
                      nullptr, threads_);
        }
    }

    void sum_biases() const {
        add_in_order(at_.diff_bias, {0, at_.diff_bias.distance});
        for (std::int64_t gate = 0; gate < shape_.gates(); ++gate) {
            const auto put = [&](const GateSlots& slots, float* diff_bias) {
                const std::int64_t slot = slots[static_cast<std::size_t>(gate)];
                std::copy_n(at_.diff_bias.first + slot * state_.padded(), shape_.K,
                            diff_bias + gate * shape_.K);
            };
            put(src_slots(shape_.cell), tensors_.diff_b_ih);
            put(hidden_slots(shape_.cell), tensors_.diff_b_hh);
        }
    }

    const RnnBackward& tensors_;
    const Plan recurrence_ = pass(RnnPass::diff_recurrence).typical_plan();
    const WorkspacePool::Lease lease_;
    const BackwardScratch at_;
};

}  // namespace

void Rnn::backward(const RnnBackward& tensors) const {
    if (shape_.rows() == 0) {
        backward_without_steps(shape_, tensors);
    } else {
        BackwardSteps(*this, tensors).run();
    }
}

std::int64_t Rnn::backward_scratch_bytes() const {
    if (shape_.rows() == 0) return 0;
    const auto recurrence = passes_.at(RnnPass::diff_recurrence).typical_plan();
    return BackwardScratch(shape_, *recurrence, num_threads(), nullptr).bytes;
}

}  // namespace dlprim
