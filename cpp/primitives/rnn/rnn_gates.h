// The element-wise part of a recurrent step: what the gates do with a tile of pre-activations, and
// backward, what reaches the pre-activations. A tile is a block of sequences by a panel of channels
// of the state; the caller applies these to it while the kernel's result is in the cache. Written
// in Highway and compiled once per vector width as per_isa.h describes; always in float32.
#pragma once

#include <cstdint>

#include "jit/dtype.h"
#include "jit/isa.h"
#include "primitives/rnn/rnn_shape.h"

namespace dlprim {

// Which sequences have a step at time t: all, or those with t < lengths[row].
struct ValidRows {
    const std::int64_t* lengths = nullptr;
    std::int64_t t = 0;

    bool at(std::int64_t row) const { return lengths == nullptr || t < lengths[row]; }
};

// How far what the next tile reads is from what this one reads, in rows and channels. It is fetched
// while this one is computed.
struct NextTile {
    std::int64_t rows = 0;
    std::int64_t channels = 0;
};

// All pointers are at the first row and channel of the tile. "Panel" rows are `width` elements
// apart, others as said; of those and of the sums `channels` are read and written, of other panels
// all. Rows that are not valid keep their state; their dst, gates and hidden_n are zero.
struct GateTile {
    std::int64_t rows = 0;
    std::int64_t channels = 0;
    std::int64_t width = 0;
    std::int64_t K = 0;  // distance of plain rows, and of gates within a row
    ValidRows valid = {};
    // Written forward, or null there, and read backward.
    float* gates = nullptr;        // (rows, gates, K), after activation
    float* cells = nullptr;        // LSTM: (rows, K), c after the step
    float* hidden_n = nullptr;     // GRU: (rows, K), n's product with its bias
    const void* hidden = nullptr;  // panel of the dtype: the hidden state before the step
    std::int64_t slot_stride = 0;  // elements from slot to slot, of sums or of deltas

    // Forward. Panels, [slot]: src * w_ih with the bias plus hidden state * w_hh; of n of a GRU
    // both apart, in slots 2 and 3.
    const float* sums = nullptr;
    // From these sums to those that are needed next, which are fetched while these are read.
    std::int64_t next_sums = 0;
    const float* hidden_bias = nullptr;  // GRU: of n towards the hidden state
    float* state = nullptr;              // panel: c of an LSTM, h of a GRU; read and written
    void* next_hidden = nullptr;         // panel of the dtype: the hidden state after the step
    void* dst = nullptr;                 // (rows, K) of the dtype

    // Backward.
    NextTile next = {};
    const float* product = nullptr;  // panel: deltas of the later step * w_hh transposed, or null
    const void* diff_dst = nullptr;  // (rows, K) of the dtype
    const float* last_cells = nullptr;  // LSTM: (rows, K), before the step; null is zero
    // Panels, read and written: what reaches the hidden state past its products, and, of an LSTM,
    // the gradient of c. At first the gradients of the last states.
    float* diff_hidden = nullptr;
    float* diff_cells = nullptr;
    void* deltas = nullptr;        // [slot] panel of the dtype
    float* diff_bias = nullptr;    // [slot][width], added to
    std::int64_t bias_stride = 0;  // floats from slot to slot
};

struct GateFunctions {
    void (*forward)(const GateTile& tile);
    void (*backward)(const GateTile& tile);
};

// For an ISA level that this machine can run; f32 or bf16.
GateFunctions gate_functions(Isa isa, RnnCell cell, DType dtype);

}  // namespace dlprim
