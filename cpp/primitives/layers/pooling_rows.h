// The vector code behind pooling.h: the channels of one pixel and those of its window. Compiled
// once per vector width as per_isa.h describes.
#pragma once

#include <cstdint>

#include "jit/dtype.h"
#include "jit/isa.h"

namespace dlprim {

// What one pixel of the result gathers from: rows x columns pixels.
struct PoolWindow {
    std::int64_t channels = 0;
    std::int64_t rows = 0;
    std::int64_t columns = 0;
    std::int64_t row_distance = 0;  // elements of `from`; of the indices too
    std::int64_t column_distance = 0;
    const void* from = nullptr;
    void* to = nullptr;
    // Forward: where the taps go, or null. The first pixel is tap `tap`.
    std::uint8_t* taps_out = nullptr;
    // Backward: the tap that the first pixel's window must have taken for its gradient to come
    // here; it falls from pixel to pixel, as its window begins later.
    const std::uint8_t* taps = nullptr;
    std::int64_t tap = 0;
    std::int64_t tap_row = 0;  // from one row of pixels to the next
    std::int64_t tap_column = 0;
    // Average: a pixel's weight is scale * row_factors[row] * column_factors[column].
    float scale = 1;
    const float* row_factors = nullptr;
    const float* column_factors = nullptr;
};

using PoolFunction = void (*)(const PoolWindow&);

struct PoolFunctions {
    PoolFunction maximum;
    PoolFunction maximum_backward;
    PoolFunction weighted_sum;  // both directions of the average
};

// For an ISA level that this machine can run; f32 or bf16.
PoolFunctions pool_functions(Isa isa, DType dtype);

}  // namespace dlprim
