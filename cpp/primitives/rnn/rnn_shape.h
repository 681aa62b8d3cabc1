// What the recurrent primitives compute, as data. A cell is a number of gates, which every product
// has as many panels of, and the element-wise functions of rnn_gates.h; all else is the same for
// all cells, so one driver runs them. Tensors inside the driver are cut into panels of channels,
// [panel][row][width], where a row is one sequence at one time (row = t*N + n): a block of any rows
// of a panel is then contiguous, and no two rows are a power of two of bytes apart.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "jit/dtype.h"
#include "jit/machine.h"
#include "primitives/rnn/rnn_cell.h"
#include "primitives/tensor/partition.h"

namespace dlprim {

// Gradients of the pre-activations of a channel are kept in slots: of a GRU in four, those of n
// towards src, r, z, and of n towards the hidden state, so that what either product needs is three
// neighbours, and of other cells in one per gate.
using GateSlots = std::array<std::int64_t, 4>;  // by gate
constexpr GateSlots src_slots(RnnCell cell) {
    return cell == RnnCell::gru ? GateSlots{1, 2, 0, 0} : GateSlots{0, 1, 2, 3};
}
constexpr GateSlots hidden_slots(RnnCell cell) {
    return cell == RnnCell::gru ? GateSlots{1, 2, 3, 0} : GateSlots{0, 1, 2, 3};
}
constexpr std::int64_t first_hidden_slot(RnnCell cell) { return cell == RnnCell::gru ? 1 : 0; }

// Channels in panels of equal width, a multiple of 16. What is behind the last channel is zero in
// every operand.
inline constexpr std::int64_t kMostPanelWidth = 64;

struct Panels {
    std::int64_t channels = 0;
    std::int64_t width = 16;

    std::int64_t count() const { return Blocks{channels, width}.count(); }
    std::int64_t padded() const { return count() * width; }
    Range at(std::int64_t panel) const { return Blocks{channels, width}.at(panel); }
};

Panels panels_of(std::int64_t channels);

// Widest panels of the backward pass. Where registers are few a row is a cache line: small tiles go
// down the rows again and again, and lines behind each other use all sets of the L1 cache. (The
// forward pass is as fast with wide ones, and one sequence faster.)
std::int64_t most_line_width(DType dtype, const Machine& machine);

struct RnnShape {
    RnnCell cell = RnnCell::lstm;
    std::int64_t T = 0;  // steps
    std::int64_t N = 0;  // sequences
    std::int64_t C = 0;  // input channels
    std::int64_t K = 0;  // channels of the state
    DType dtype = DType::f32;
    bool reverse = false;  // from the last step to the first
    CellForm form = {};

    std::int64_t gates() const { return gates_of(cell); }
    std::int64_t slots() const { return cell == RnnCell::gru ? 4 : gates(); }
    // A GRU whose reset gate comes behind the product keeps the two parts of n apart.
    bool keeps_parts() const { return cell == RnnCell::gru && form.reset_after; }
    // One that resets in front of the product of n has two products in a step.
    bool resets_before() const { return cell == RnnCell::gru && !form.reset_after; }
    // Sums of a channel that a step has.
    std::int64_t sums() const { return gates() + (keeps_parts() ? 1 : 0); }
    // Of gates whose products of a step run together.
    std::int64_t first_gates() const { return resets_before() ? 2 : gates(); }
    // Beside the hidden state: c of an LSTM, the h of a GRU in float32.
    bool has_state() const { return cell != RnnCell::rnn; }
    bool has_backward() const { return form == CellForm{} || is_relu(); }
    // A plain cell with relu in place of tanh.
    bool is_relu() const {
        return cell == RnnCell::rnn && form == CellForm{.functions = {{{GateCurve::relu}}}};
    }
    std::int64_t rows() const { return T * N; }
    Panels src() const { return panels_of(C); }
    Panels state() const { return panels_of(K); }
    // The state's panels with whole vectors of channels, which sums have: kernels store no part of
    // one.
    Panels vectors() const {
        const auto lanes = static_cast<std::int64_t>(this_machine().vector_lanes());
        return {rounded_up(K, lanes), state().width};
    }
    // Of the backward pass.
    Panels lines(std::int64_t of) const {
        const Panels wide = panels_of(of);
        return {of, std::min(wide.width, most_line_width(dtype, this_machine()))};
    }
    Panels src_lines() const { return lines(C); }
    Panels state_lines() const { return lines(K); }
    // The time of step `step` in the order of computation.
    std::int64_t time(std::int64_t step) const { return reverse ? T - 1 - step : step; }
    // Of one pass forward, two per multiply-add; backward are twice as many.
    double flops() const;
};

// Throws std::invalid_argument unless T and N are at least 0, C and K at least 1, what is to be
// addressed fits, and the form is one that the cell has.
RnnShape validated(const RnnShape& shape);

// Throws std::invalid_argument for a form that has no backward pass.
void require_backward(const RnnShape& shape);

// Throws std::invalid_argument unless all N of them are from 0 to T.
void require_lengths(const RnnShape& shape, const std::int64_t* lengths);

}  // namespace dlprim
