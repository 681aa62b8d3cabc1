// What the backward pass of a recurrent layer keeps while it runs: the gradients of all
// pre-activations, which three products read, and the other operands of the gradients of the
// weights.
#pragma once

#include <cstdint>

#include "primitives/nest/contraction_plan.h"
#include "primitives/rnn/rnn_contraction.h"
#include "primitives/rnn/rnn_scratch.h"
#include "primitives/rnn/rnn_step.h"

namespace dlprim {

// Without a base only `bytes` counts; without a step there are no rows.
struct RnnBackwardScratch {
    RnnBackwardScratch(const RnnShape& shape, const ContractionPlan* step, int threads,
                       char* base) {
        const std::int64_t element = size_of(shape.dtype);
        const std::int64_t state = shape.state().padded();
        const std::int64_t src = shape.src().padded();
        ScratchCutter cutter(base);
        deltas = cutter.take(kSlots * state * shape.rows() * element);
        src_rows = cutter.take(src * shape.rows() * element);
        hidden = cutter.take(state * (shape.rows() + shape.N) * element);
        if (shape.dtype != DType::f32) {
            delta_pairs = cutter.take(kSlots * state * summed_rows(shape) * element);
            src_pairs = cutter.take(src * summed_rows(shape) * element);
            hidden_pairs = cutter.take(state * summed_rows(shape) * element);
        }
        diff_hidden = cutter.take_floats(state * shape.N);
        diff_cells = cutter.take_floats(state * shape.N);
        if (step != nullptr) {
            blocks = Blocks{shape.N, RnnStep::block_rows(*step)}.count();
            diff_bias = cutter.take_floats(blocks * kSlots * state);
            tiles = cutter.take_floats(threads * tile_floats(*step));
        }
        bytes = cutter.bytes();
    }

    static std::int64_t tile_floats(const ContractionPlan& step) {
        return RnnStep::block_rows(step) * step.contraction().ldc;
    }

    // The state before time t stands at row t*N of this: behind the initial state, or in reverse
    // before it.
    char* states_before(const RnnShape& shape) const {
        const std::int64_t step = shape.N * shape.state().width * size_of(shape.dtype);
        return hidden + (shape.reverse ? step : 0);
    }

    char* deltas = nullptr;       // [slot][panel][row]
    char* src_rows = nullptr;     // panels
    char* hidden = nullptr;       // panels: the state before every step, in the order of time
    char* delta_pairs = nullptr;  // what the gradients of the weights sum in bfloat16
    char* src_pairs = nullptr;
    char* hidden_pairs = nullptr;
    float* diff_hidden = nullptr;  // panels of N rows
    float* diff_cells = nullptr;
    float* diff_bias = nullptr;  // [block of rows][slot][padded K]
    std::int64_t blocks = 0;
    float* tiles = nullptr;
    std::int64_t bytes = 0;
};

}  // namespace dlprim
