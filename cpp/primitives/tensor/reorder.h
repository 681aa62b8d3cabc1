// Copies a tensor from one layout to another: all packing, unpacking and transposing of operands is
// this. Elements are read and written once, so it is worth its cost only at the speed of a plain
// copy. The result is the same bits at every ISA level and for any number of threads.
#pragma once

#include "primitives/tensor/layout.h"

namespace dlprim {

// Both layouts have the same letters and extents. The types are equal, or float32 is rounded to
// bfloat16 as round_to_bf16() does. Padding of `to` becomes zero, that of `from` is not read; gaps
// between the strides of `to` are left alone. src and dst must not overlap. Throws
// std::invalid_argument for any other pair of types.
void reorder(const Layout& from, const void* src, const Layout& to, void* dst);

}  // namespace dlprim
