// Convolution with one filter per channel. There is no sum over channels and so no matrix product:
// every pass is a handful of multiply-adds per element, bound by memory, with vectors along the
// channels (row programs, depthwise_programs.h), in a fixed nest. bfloat16 is widened, summed in
// float32 and rounded once. Weights are [blocks][R][S][block].
#pragma once

#include <memory>

#include "primitives/conv/conv_pass.h"

namespace dlprim {

// Forward or backward-data.
std::unique_ptr<ConvPass> depthwise_images_pass(const ConvSpec& spec, PassKind pass);

// Backward-weights: the sum over images and pixels is in an order that does not depend on the
// number of threads. `scratch` is aligned to the cache line and has scratch_bytes().
class DepthwiseWeights : public ConvPass {
public:
    virtual void write(const ConvTensors& tensors, char* scratch) const = 0;
};
std::unique_ptr<DepthwiseWeights> depthwise_weights_pass(const ConvSpec& spec);

}  // namespace dlprim
