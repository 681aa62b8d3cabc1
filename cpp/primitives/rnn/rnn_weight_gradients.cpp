#include "primitives/rnn/rnn_weight_gradients.h"

#include <algorithm>

namespace dlprim {
namespace {

void bias_gradients(const RnnShape& shape, const RnnBackward& tensors,
                    const RnnBackwardScratch& scratch) {
    const std::int64_t slot = shape.state().padded();
    for (std::int64_t block = 1; block < scratch.blocks; ++block) {
        for (std::int64_t i = 0; i < kSlots * slot; ++i) {
            scratch.diff_bias[i] += scratch.diff_bias[block * kSlots * slot + i];
        }
    }
    for (std::int64_t gate = 0; gate < shape.gates(); ++gate) {
        const auto index = static_cast<std::size_t>(gate);
        std::copy_n(scratch.diff_bias + src_slots(shape.cell)[index] * slot, shape.K,
                    tensors.diff_b_ih + gate * shape.K);
        std::copy_n(scratch.diff_bias + hidden_slots(shape.cell)[index] * slot, shape.K,
                    tensors.diff_b_hh + gate * shape.K);
    }
}

}  // namespace

void weight_gradients(const RnnShape& shape, const RnnBackward& tensors,
                      const RnnBackwardScratch& scratch, const RnnWeightPlans& plans) {
    const std::int64_t element = size_of(shape.dtype);
    const bool pairs = shape.dtype != DType::f32;
    const Panels state = shape.state();
    const std::int64_t rows = summed_rows(shape);
    if (pairs) {
        pair_rows({.dtype = shape.dtype,
                   .panels = {kSlots * state.padded(), state.width},
                   .rows = shape.rows(),
                   .first = scratch.deltas,
                   .panel_rows = shape.rows()},
                  scratch.delta_pairs);
    }
    const char* const deltas = pairs ? scratch.delta_pairs : scratch.deltas;
    const auto slot_bytes = state.padded() * rows * element;
    for (std::int64_t gate = 0; gate < shape.gates(); ++gate) {
        const auto index = static_cast<std::size_t>(gate);
        plans.w_ih.run({.a = deltas + src_slots(shape.cell)[index] * slot_bytes,
                        .b = pairs ? scratch.src_pairs : scratch.src_rows,
                        .c = tensors.diff_w_ih + gate * shape.K * shape.C},
                       nullptr, plans.threads);
        plans.w_hh.run({.a = deltas + hidden_slots(shape.cell)[index] * slot_bytes,
                        .b = pairs ? scratch.hidden_pairs : scratch.states_before(shape),
                        .c = tensors.diff_w_hh + gate * shape.K * shape.K},
                       nullptr, plans.threads);
    }
    bias_gradients(shape, tensors, scratch);
}

void clear_weight_gradients(const RnnShape& shape, const RnnBackward& tensors) {
    const std::int64_t channels = shape.gates() * shape.K;
    std::fill_n(tensors.diff_w_ih, channels * shape.C, 0.0F);
    std::fill_n(tensors.diff_w_hh, channels * shape.K, 0.0F);
    std::fill_n(tensors.diff_b_ih, channels, 0.0F);
    std::fill_n(tensors.diff_b_hh, channels, 0.0F);
}

}  // namespace dlprim
