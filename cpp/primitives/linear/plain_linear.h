// A linear layer on the arrays that people hold: x (N, C), weights (K, C), y (N, K), nothing packed
// between calls. Each pass is a statement on strided arrays, whose ways ProductRun prices; what is
// here is which statement that is, and the gradient through activation and bias.
//
// Results are the same bits for any number of threads. An object may be used by several threads at
// once.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>

#include "jit/activation.h"
#include "jit/dtype.h"
#include "primitives/linear/linear_layout.h"
#include "primitives/tensor/workspace.h"

namespace dlprim {

class ProductRun;

// Elements from row to row and from column to column.
struct MatrixStrides {
    std::int64_t row = 0;
    std::int64_t column = 1;

    friend auto operator<=>(const MatrixStrides&, const MatrixStrides&) = default;
};

// Rows of so many columns behind each other.
constexpr MatrixStrides dense_rows(std::int64_t columns) {
    return {.row = columns > 0 ? columns : 1};  // statements want rows that are apart
}

struct PlainLinearSpec {
    LinearShape shape = {};
    DType dtype = DType::f32;  // float32 or bfloat16
    Activation activation = Activation::none;
    bool bias = false;
    MatrixStrides src = {};
    MatrixStrides weights = {};
};

struct PlainLinearForward {
    const void* src = nullptr;
    const void* weights = nullptr;
    const float* bias = nullptr;
    void* dst = nullptr;  // in C's order
};

// All in C's order but src and weights.
struct PlainLinearGradients {
    const void* diff_dst = nullptr;
    const void* src = nullptr;
    const void* weights = nullptr;
    const void* saved = nullptr;  // see ActivationBackward
    void* diff_src = nullptr;
    void* diff_weights = nullptr;  // of the type of the layer
    float* diff_bias = nullptr;
};

class PlainLinear {
public:
    explicit PlainLinear(const PlainLinearSpec& spec) : spec_(spec) {}

    // No operand overlaps a result.
    void forward(const PlainLinearForward& tensors) const;
    void backward(const PlainLinearGradients& tensors) const;

private:
    using Product = std::shared_ptr<const ProductRun>;

    PlainLinearSpec spec_;
    // Made by the first call that needs them.
    mutable std::once_flag forward_made_;
    mutable std::once_flag backward_made_;
    mutable Product forward_ = {};
    mutable Product data_ = {};  // of the backward pass
    mutable Product weights_ = {};
    std::shared_ptr<WorkspacePool> workspaces_ = WorkspacePool::shared();
};

}  // namespace dlprim
