// The forward pass of a layer with one output channel: a matrix times a vector. As a kernel call it
// would use one lane of every vector; here vectors run along the input channels of a sample, and
// what is read of src is all that it costs (Google Highway, compiled per vector width as
// per_isa.h describes).
#pragma once

#include <cstdint>

#include "jit/dtype.h"
#include "jit/isa.h"

namespace dlprim {

// Sums over the channels of one block, of samples one behind the other; f32 or bf16 samples.
struct NarrowBlock {
    std::int64_t samples = 0;
    std::int64_t channels = 0;
    const void* src = nullptr;
    std::int64_t ld_src = 0;         // elements from sample to sample
    const float* weights = nullptr;  // one for each channel
    float* sums = nullptr;           // one for each sample, added to
};

using NarrowFunction = void (*)(const NarrowBlock&);

// For an ISA level that this machine can run.
NarrowFunction narrow_function(Isa isa, DType dtype);

}  // namespace dlprim
