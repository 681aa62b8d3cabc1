// A recurrent layer as steps of a network: its passes, and what packs weights that runs compute.
// The layer and its forms must outlive the network.
#pragma once

#include "bindings/graph/network.h"
#include "primitives/rnn/rnn.h"

namespace dlprim::bindings {

// Forward; with `gates` among the values, and what stands beside them, for a backward pass.
void add_rnn(const Rnn& rnn, const Forms& forms, StepValues& step);
void add_rnn_backward(const Rnn& rnn, const Forms& forms, StepValues& step);
void add_rnn_packing(const Rnn& rnn, const Forms& forms, StepValues& step);
// Of packed weights those for the backward pass.
void add_rnn_transposing(const Rnn& rnn, const Forms& forms, StepValues& step);

}  // namespace dlprim::bindings
