// A matrix times a few vectors: layers with few samples or few output channels. As a kernel call
// they would use a few lanes of every vector; here vectors run along the sum, and what is read of
// the matrix, once, is all that it costs (Google Highway, compiled per vector width as per_isa.h
// describes).
#pragma once

#include <cstdint>

#include "jit/dtype.h"

namespace dlprim {

// out[row][i] = bias + sum over c of matrix[row][c] * vectors[i][c]. Distances are in elements.
struct NarrowProduct {
    DType dtype = DType::f32;  // of matrix and out, f32 or bf16
    std::int64_t rows = 0;
    std::int64_t columns = 0;
    const void* matrix = nullptr;  // in blocks of columns
    std::int64_t block = 0;
    std::int64_t row_step = 0;
    std::int64_t block_step = 0;
    const float* vectors = nullptr;
    std::int64_t vector_count = 1;
    std::int64_t vector_step = 0;
    const float* bias = nullptr;  // or null
    std::int64_t bias_row_step = 0;
    std::int64_t bias_vector_step = 0;
    void* out = nullptr;
    std::int64_t out_row_step = 0;
    std::int64_t out_vector_step = 0;
};

// The same bits for any number of threads.
void narrow_product(const NarrowProduct& product);

}  // namespace dlprim
