// The passes of a convolution that run as Winograd convolution, with tiles of 4 or 2.
#pragma once

#include <memory>

#include "primitives/conv/conv_pass.h"

namespace dlprim {

std::unique_ptr<ConvPass> winograd_conv_pass(const ConvSpec& spec, PassKind pass, int tile);

}  // namespace dlprim
