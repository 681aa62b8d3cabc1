// Images read between their pixels, in regions.
#pragma once

#include "graph/functions/function_step.h"

namespace dlprim {

// Inputs: x (N, C, H, W), regions (R, 4) of y, x, y, x in shares of the image, and their images
// (R,), int32 or int64. Output (R, C, h, w), of float32 as x and the regions. mode: 0 takes the
// nearest pixel, 1 is linear; outside: the number that lies around an image. The step throws
// std::out_of_range for an image that there is not.
RunOfCall crops(const Network& network, const ArrayCall& call);

}  // namespace dlprim
