// Rows of a table by index, and the sum of gradients back into the table. The sum of a row runs in
// the order of the indices, however many threads share the rows.
#pragma once

#include <cstdint>

#include "jit/dtype.h"

namespace dlprim {

// dst[i] = weights[indices[i]], rows of `row_bytes`. Indices are valid.
void gather_rows(const std::int64_t* indices, std::int64_t count, const void* weights,
                 std::int64_t row_bytes, void* dst);

struct EmbeddingBackward {
    const std::int64_t* indices = nullptr;  // in [0, rows)
    std::int64_t count = 0;
    std::int64_t rows = 0;
    std::int64_t width = 0;  // elements of a row
    DType dtype = DType::f32;
    const void* diff_dst = nullptr;  // (count, width), f32 or bf16
    float* diff_weights = nullptr;   // (rows, width)
};

// Rows that no index names become zero. Long sums are made of shorter ones, for accuracy.
void embedding_backward(const EmbeddingBackward& problem);

}  // namespace dlprim
