// The gradients of weights and biases of a recurrent layer, from the gradients of all
// pre-activations, which the backward pass has left in its scratch: sums over steps and sequences.
#pragma once

#include "primitives/nest/contraction_plan.h"
#include "primitives/rnn/rnn.h"
#include "primitives/rnn/rnn_backward_scratch.h"

namespace dlprim {

struct RnnWeightPlans {
    const ContractionPlan& w_ih;
    const ContractionPlan& w_hh;
    int threads = 1;
};

// Of at least one row.
void weight_gradients(const RnnShape& shape, const RnnBackward& tensors,
                      const RnnBackwardScratch& scratch, const RnnWeightPlans& plans);

// The sums over no rows.
void clear_weight_gradients(const RnnShape& shape, const RnnBackward& tensors);

}  // namespace dlprim
