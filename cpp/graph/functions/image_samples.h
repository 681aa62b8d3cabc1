// Images read between their pixels: at places of a grid, and in regions.
#pragma once

#include "graph/functions/function_step.h"

namespace dlprim {

// Inputs: x (N, C, H, W), a grid (N, h, w, 2) of x and y from -1 to 1. Output (N, C, h, w). All of
// float32. mode: 0 takes the nearest pixel, 1 is linear, 2 cubic; padding: 0 zeros, 1 border,
// 2 reflection; aligned: -1 and 1 are the middle of the pixels at the edges.
RunOfCall grid_samples(const Network& network, const ArrayCall& call);

// Inputs: x (N, C, H, W), regions (R, 4) of y, x, y, x in shares of the image, and their images
// (R,), int32 or int64. Output (R, C, h, w), of float32 as x and the regions. mode: 0 takes the
// nearest pixel, 1 is linear; outside: the number that lies around an image. The step throws
// std::out_of_range for an image that there is not.
RunOfCall crops(const Network& network, const ArrayCall& call);

}  // namespace dlprim
