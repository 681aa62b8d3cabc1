// The passes of a depthwise convolution (depthwise.h), which run fixed nests without a kernel.
#pragma once

#include <memory>

#include "primitives/conv/conv_pass.h"

namespace dlprim {

std::unique_ptr<ConvPass> depthwise_pass(const ConvSpec& spec, PassKind pass);

}  // namespace dlprim
