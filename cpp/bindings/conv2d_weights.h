// Packed weights of a convolution in one array: as the direct algorithm takes them, and behind
// them, from a cache line on, the transformed ones of Winograd's passes, float32 in any dtype.
#pragma once

#include "bindings/conv2d_operand.h"

namespace dlprim::bindings {

struct PyConv2d::Weights {
    Maybe array;
    const float* forward = nullptr;  // null where they are not in the array
    const float* backward = nullptr;
};

}  // namespace dlprim::bindings
