// The passes of a convolution around the kernel (conv_contraction.h), run by the one driver.
#pragma once

#include <memory>

#include "primitives/conv/conv_pass.h"

namespace dlprim {

std::unique_ptr<ConvPass> direct_forward_pass(const ConvSpec& spec);
std::unique_ptr<ConvPass> direct_data_pass(const ConvSpec& spec);
std::unique_ptr<ConvPass> direct_weights_pass(const ConvSpec& spec);

}  // namespace dlprim
