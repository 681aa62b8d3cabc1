#include <algorithm>
#include <array>

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
        const Panels lines = shape.state_lines();
        const std::int64_t state = lines.padded(), src = shape.src_lines().padded();
        tile_rows = std::max<std::int64_t>(dlprim::tile_rows(recurrence), 1);
        ScratchCutter cutter(base);
        deltas = cutter.take(shape.slots() * state * shape.rows() * element);
        src_rows = cutter.take(src * shape.rows() * element);
        hidden = cutter.take(state * (shape.rows() + shape.N) * element);
        const std::int64_t step = shape.N * lines.width * element;
        states = base == nullptr || !shape.reverse ? hidden : hidden + step;
        summed_deltas = deltas;
        summed_src = src_rows;
        summed_states = states;
        if (shape.dtype != DType::f32) {
            summed_deltas = cutter.take(shape.slots() * state * summed_rows(shape) * element);
            summed_src = cutter.take(src * summed_rows(shape) * element);
            summed_states = cutter.take(state * summed_rows(shape) * element);
        }
        diff_hidden = cutter.take_floats(state * shape.N);
        diff_cells = cutter.take_floats(state * shape.N);
        diff_bias = {.count = Blocks{std::max<std::int64_t>(shape.N, 1), tile_rows}.count(),
                     .distance = shape.slots() * state};
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

class BackwardSteps : RnnSteps {
public:
    BackwardSteps(const Rnn& rnn, const RnnBackward& tensors)
        : RnnSteps(rnn, tensors.lengths, true),
          tensors_(tensors),
          lease_(pool_, BackwardScratch(shape_, *recurrence_, threads_, nullptr).bytes),
          at_(shape_, *recurrence_, threads_, lease_.data()) {}

    void run() {
        load_state(DType::f32, tensors_.diff_c_n, at_.diff_cells);
        load_state(tensors_.diff_h_n, at_.hidden, at_.diff_hidden);
        std::fill_n(at_.diff_bias.first, at_.diff_bias.count * at_.diff_bias.distance, 0.0F);
        gather_rows();
        clear_padding_of_deltas();
        for (std::int64_t step = shape_.T; step-- > 0;) run_one_step(step);
        if (shape_.T > 0) pass_to_first_state();
        pass(RnnPass::diff_src)
            .typical_plan()
            ->run({.a = at_.deltas, .b = tensors_.weights.w_ih_transposed, .c = tensors_.diff_src},
                  nullptr, threads_);
        sum_weights();
        sum_biases();
        if (shape_.cell == RnnCell::lstm) {
            reorders_.store_floats.run(at_.diff_cells, tensors_.diff_c_0);
        }
        reorders_.store_rounded.run(at_.diff_hidden, tensors_.diff_h_0);
    }

private:
    void gather_rows() {
        const std::int64_t state_rows = shape_.rows() + shape_.N;
        const std::int64_t first_step = shape_.reverse ? 0 : shape_.N;
        reorders_.src.run(tensors_.src, at_.src_rows);
        reorders_.dst.run(tensors_.dst, at_.hidden + panel_offset(0, first_step, 0) * element_);
        put_first_state();
        if (lengths_ != nullptr) {
            clear_padding(shape_.src_lines(), shape_.rows(), at_.src_rows);
            clear_padding(state_, state_rows, at_.states);
        }
        if (shape_.dtype == DType::f32) return;
        reorders_.src_pairs.run(at_.src_rows, at_.summed_src);
        reorders_.state_pairs.run(at_.states, at_.summed_states);
    }

    // Where a sequence begins: before time 0, or in reverse at its end.
    void put_first_state() {
        for (std::int64_t panel = 0; panel < state_.count(); ++panel) {
            const std::int64_t width = state_.width * element_;
            const std::int64_t bytes =
                tensors_.h_0 == nullptr ? 0 : state_.at(panel).size() * element_;
            for (std::int64_t n = 0; n < shape_.N; ++n) {
                std::int64_t row = n;
                if (shape_.reverse)
                    row += (lengths_ == nullptr ? shape_.T : lengths_[n]) * shape_.N;
                char* const to =
                    at_.hidden + panel_offset(shape_.rows() + shape_.N, row, panel) * element_;
                if (bytes > 0) {
                    std::memcpy(
                        to,
                        static_cast<const char*>(tensors_.h_0) + plain_offset(n, panel) * element_,
                        static_cast<std::size_t>(bytes));
                }
                std::memset(to + bytes, 0, static_cast<std::size_t>(width - bytes));
            }
        }
    }

    // Makes rows zero that lie behind the end of their sequence.
    void clear_padding(const Panels& panels, std::int64_t panel_rows, char* first) const {
        const std::int64_t width = panels.width * element_;
        parallel_for(panels.count() * shape_.T, [&](std::int64_t task) {
            const std::int64_t t = task % shape_.T;
            char* const rows = first + (task / shape_.T * panel_rows + t * shape_.N) * width;
            for (std::int64_t n = 0; n < shape_.N; ++n) {
                if (t < lengths_[n]) continue;
                std::memset(rows + n * width, 0, static_cast<std::size_t>(width));
            }
        });
    }

    void run_one_step(std::int64_t step) {
        const bool last = step + 1 == shape_.T;
        const void* const later = last ? nullptr : deltas_at(shape_.time(step + 1));
        run_step(
            shared_,
            [&](const LoopNest::Ranges& ranges, const StepTile&, const Worker& worker) {
                if (!last) multiply(later, ranges, worker);
            },
            [&](const StepTile& tile, std::int64_t thread) {
                apply_gates(step, tile, last ? nullptr : product_of(thread));
            });
    }

    void pass_to_first_state() {
        const void* const deltas = deltas_at(shape_.time(0));
        run_step(
            shared_,
            [&](const LoopNest::Ranges& ranges, const StepTile&, const Worker& worker) {
                multiply(deltas, ranges, worker);
            },
            [&](const StepTile& tile, std::int64_t thread) {
                const float* const product = product_of(thread);
                float* const to =
                    at_.diff_hidden + panel_offset(shape_.N, tile.rows.begin, tile.panel);
                for (std::int64_t row = 0; row < tile.rows.size(); ++row) {
                    for (std::int64_t i = tile.columns.begin; i < tile.columns.end; ++i) {
                        to[row * state_.width + i] += product[row * state_.width + i];
                    }
                }
            });
    }

    float* product_of(std::int64_t thread) const { return at_.tiles + thread * at_.tile_floats; }

    // A tile of the deltas of one step times the weights.
    void multiply(const void* deltas, const LoopNest::Ranges& ranges, const Worker& worker) const {
        shared_.run_body(
            {.a = deltas, .b = tensors_.weights.w_hh_transposed, .c = product_of(worker.thread)},
            ranges, nullptr, worker.tiles);
    }

    // What the hidden state is multiplied with.
    const char* deltas_at(std::int64_t t) const {
        const std::int64_t slot = state_.padded() * shape_.rows();
        return at_.deltas +
               (first_hidden_slot(shape_.cell) * slot + t * shape_.N * state_.width) * element_;
    }

    void apply_gates(std::int64_t step, const StepTile& tile, const float* product) const {
        const std::int64_t channels = columns_of(tile), first = tile.columns.begin;
        if (channels == 0) return;
        const std::int64_t t = shape_.time(step), panel = tile.panel;
        const NextTile next = next_tile(tile.rows, panel, shape_.reverse ? shape_.N : -shape_.N);
        for_runs(tile.rows, t, [&](Range run, bool rests) {
            const std::int64_t row = t * shape_.N + run.begin;
            const std::int64_t in_panel = panel_offset(shape_.N, run.begin, panel) + first;
            TileArgs args(run, channels);
            put_saved(args, tensors_.saved, row + next.rows, panel + next.panels, first);
            const std::int64_t in_tile = panel_offset(0, run.begin - tile.rows.begin, 0) + first;
            put_or_zeros(args, product, in_tile * 4, panel_floats_);
            args.put(at_.diff_hidden + in_panel, panel_floats_);
            put_or_zeros(args, tensors_.diff_dst, (plain_offset(row, panel) + first) * element_,
                         shape_.K * element_);
            put_saved(args, tensors_.saved, row, panel, first);
            if (shape_.cell == RnnCell::lstm) {
                const std::int64_t before = step > 0 ? shape_.time(step - 1) * shape_.N : 0;
                put_or_zeros(args, step > 0 ? tensors_.saved.cells : tensors_.c_0,
                             (plain_offset(before + run.begin, panel) + first) * 4, shape_.K * 4);
                args.put(at_.diff_cells + in_panel, panel_floats_);
            } else if (shape_.cell == RnnCell::gru) {
                const std::int64_t at = panel_offset(shape_.rows() + shape_.N, row, panel) + first;
                args.put(at_.states + at * element_, panel_elements_);
            }
            put_results(args, run, row, tile);
            gates_.of(GatePass::backward, rests)(args.get());
        });
    }

    void put_results(TileArgs& args, Range run, std::int64_t row, const StepTile& tile) const {
        const std::int64_t panel = tile.panel, first = tile.columns.begin;
        const std::int64_t in_panel = panel_offset(shape_.N, run.begin, panel) + first;
        args.put(at_.diff_hidden + in_panel, panel_floats_);
        if (shape_.cell == RnnCell::lstm) args.put(at_.diff_cells + in_panel, panel_floats_);
        const std::int64_t padded = state_.padded();
        for (std::int64_t slot = 0; slot < shape_.slots(); ++slot) {
            const std::int64_t at =
                slot * padded * shape_.rows() + panel_offset(shape_.rows(), row, panel) + first;
            args.put(at_.deltas + at * element_, panel_elements_);
        }
        float* const diff_bias = at_.diff_bias.copy(run.begin / at_.tile_rows);
        for (std::int64_t slot = 0; slot < shape_.slots(); ++slot) {
            args.put(diff_bias + slot * padded + panel * state_.width + first, 0);
        }
    }

    // Rows from `offset` on, `stride` bytes apart.
    static void put_or_zeros(TileArgs& args, const void* first, std::int64_t offset,
                             std::int64_t stride) {
        static constexpr std::array<float, kMostPanelWidth> kZeros{};
        if (first == nullptr) {
            args.put(kZeros.data(), 0);
        } else {
            args.put(static_cast<const char*>(first) + offset, stride);
        }
    }

    // Behind the last channel, where gates write nothing.
    void clear_padding_of_deltas() const {
        if (shape_.K == state_.padded()) return;
        const std::int64_t panel = shape_.rows() * panel_elements_;
        for (std::int64_t slot = 1; slot <= shape_.slots(); ++slot) {
            std::memset(at_.deltas + (slot * state_.count() - 1) * panel, 0,
                        static_cast<std::size_t>(panel));
        }
    }

    void sum_weights() const {
        if (shape_.dtype != DType::f32) reorders_.delta_pairs.run(at_.deltas, at_.summed_deltas);
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
    const ContractionPlan& shared_ = recurrence_->for_threads(threads_);  // what threads run of it
    const WorkspacePool::Lease lease_;
    const BackwardScratch at_;
};

}  // namespace

void Rnn::backward(const RnnBackward& tensors) const {
    require_backward(shape_);
    BackwardSteps(*this, tensors).run();
}

std::int64_t Rnn::backward_scratch_bytes() const {
    if (!shape_.has_backward()) return 0;
    const auto recurrence = passes_.at(RnnPass::diff_recurrence).typical_plan();
    return BackwardScratch(shape_, *recurrence, num_threads(), nullptr).bytes;
}

}  // namespace dlprim
