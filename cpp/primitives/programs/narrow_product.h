// A matrix times a few vectors: layers with few samples or few output channels. As a kernel call
// they would use a few lanes of every vector; here vectors run along the sum, and what is read of
// the matrix, once, is all that it costs: sums along rows, as row programs.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "primitives/tensor/partition.h"
#include "primitives/tensor/workspace.h"
#include "rows/row_kernel.h"

namespace dlprim {

// out[row][i] = bias + sum over c of matrix[row][c] * vectors[i][c]. Distances are in elements.
struct NarrowShape {
    DType dtype = DType::f32;  // of matrix and out, f32 or bf16
    std::int64_t rows = 0;
    std::int64_t columns = 0;
    std::int64_t block = 0;  // of columns, in which the matrix is
    std::int64_t row_step = 0;
    std::int64_t block_step = 0;
    std::int64_t vector_count = 1;
    std::int64_t vector_step = 0;
    bool bias = false;
    std::int64_t bias_row_step = 0;
    std::int64_t bias_vector_step = 0;
    std::int64_t out_row_step = 0;
    std::int64_t out_vector_step = 0;
};

struct NarrowOperands {
    const void* matrix;
    const float* vectors;
    const float* bias;
    void* out;
};

class NarrowProduct {
public:
    // At most seven vectors.
    explicit NarrowProduct(const NarrowShape& shape);

    // The same bits for any number of threads.
    void run(const NarrowOperands& operands) const;

    // With the present number of threads.
    std::int64_t scratch_bytes() const;

private:
    // Where sums are, float32.
    struct Sums {
        float* first;
        std::int64_t row_step;
        std::int64_t vector_step;
    };

    void add_kernels(std::size_t at, const Sums* before);
    std::shared_ptr<const RowKernel> kernel(std::int64_t rows, const Sums* before,
                                            std::int32_t most_vectors = 0) const;
    void run_task(const NarrowOperands& operands, Range rows) const;
    void add_block(const NarrowOperands& operands, std::int64_t block, Range rows,
                   const Sums& sums) const;

    NarrowShape shape_;
    Blocks blocks_;
    std::int64_t together_;  // rows that share what is loaded of the vectors
    Sums sums_;              // distances
    Blocks tasks_;           // of rows
    // Of the first block and of the others, for rows together and for single ones.
    std::array<std::array<std::shared_ptr<const RowKernel>, 2>, 2> kernels_;
    std::shared_ptr<WorkspacePool> workspaces_ = WorkspacePool::shared();
};

}  // namespace dlprim
