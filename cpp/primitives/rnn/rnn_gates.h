// The element-wise part of a recurrent step: what the gates do with a tile of pre-activations, and
// backward, what reaches the pre-activations. A tile is a block of sequences by a panel of channels
// of the state; its rows go through a row program while the kernel's result is in the cache.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "primitives/rnn/rnn_shape.h"
#include "rows/row_kernel.h"

namespace dlprim {

// Operands, in this order; float32 unless "of the dtype", [sum], [slot] or [gate] where there are
// several.
// forward   sums [sum] of the next tile, which are fetched; sums [sum]: src * w_ih with the bias
//           plus hidden state * w_hh, of n of a GRU both apart, in slots 2 and 3, or without r
//           where the GRU resets before; GRU that resets after: hidden_bias, a column, of n towards
//           the hidden state; LSTM with peepholes: those of i, f and o, columns; state, but of a
//           plain cell: c of an LSTM, h of a GRU; hidden, of the dtype, before the step
//        -> state; hidden and dst, of the dtype; saved: gates [gate], after activation, and cells
//           of an LSTM, c after the step, or hidden_n of a GRU, n's product with its bias; a plain
//           cell saves its gate alone
// reset     of a GRU that resets before: the sum of r; state -> r * state, of the dtype
// backward  saved of the next tile, which are fetched; product: deltas of the later step * w_hh
//           transposed; diff_hidden: what reaches the hidden state past its products; diff_dst, of
//           the dtype; saved; LSTM: cells before the step, diff_cells; GRU: hidden, of the dtype;
//           plain cells have none of these
//        -> diff_hidden; LSTM: diff_cells; deltas [slot], of the dtype; their sums [slot], columns
enum class GatePass : std::uint8_t { inference, training, backward, reset };

class GatePrograms {
public:
    explicit GatePrograms(const RnnShape& shape);

    // Of rows that take part in the step, or of those that rest: these keep their state, what they
    // leave is zero. Only passes that the shape has.
    const RowKernel& of(GatePass pass, bool rests) const {
        return *kernels_.at(static_cast<std::size_t>(pass)).at(rests ? 1 : 0);
    }

private:
    std::array<std::array<std::shared_ptr<const RowKernel>, 2>, 4> kernels_;
};

}  // namespace dlprim
