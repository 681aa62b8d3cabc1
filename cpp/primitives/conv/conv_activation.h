// The activation of a convolution as a pass of its own over dst, for what cannot apply it to its
// sums: Winograd knows relu alone, without its mask; and groups whose channels share a byte of the
// mask cannot write it one after the other.
#pragma once

#include <cstdint>

#include "primitives/conv/conv_layout.h"
#include "primitives/nest/scheduled_pass.h"

namespace dlprim {

class ConvActivation {
public:
    ConvActivation(const ConvProblem& problem, Activation activation);

    // `relu_mask` may be null.
    void run(void* dst, std::uint8_t* relu_mask) const;

private:
    ScheduledPass plans_;  // variant 1 writes the mask
};

// Whether it has to run: what fuses relu alone cannot do.
inline bool activates_apart(Activation activation, bool relu_mask) {
    return relu_mask || (activation != Activation::none && activation != Activation::relu);
}

}  // namespace dlprim
