// A linear layer on the arrays that people hold: x (N, C), weights (K, C), y (N, K), nothing packed
// between calls. Which way a pass takes follows from its shape: what would be packed must be
// multiplied often enough to pay for it, and a dimension must be long enough to lie along vectors.
//
//   narrow   a few samples or output channels: sums along C, every array read in place
//   swapped  fewer samples than output channels: y^T = weights * x^T, where the small x is packed
//            and the large weights are read in place, once; y is transposed at the end
//   packed   the weights are packed in front of the product
//   rows     weights in Fortran's order, whose rows are those of the product: read in place by up
//            to 192 samples in float32, else packed, which takes no transposing
//
// Gradients of float32 weights are written in place, and weights are read in place for the gradient
// of up to 192 samples. Results are the same bits for any number of threads. An object may be used
// by several threads at once.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>

#include "primitives/linear/linear.h"

namespace dlprim {

// All plain.
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
    enum class Way : std::uint8_t { narrow, swapped, packed, rows };

    // float32 or bfloat16. Weights are (K, C), or in Fortran's order: the memory of a (C, K) array.
    // Throws as Linear does.
    explicit PlainLinear(const LinearSpec& spec, bool fortran_weights = false);

    const LinearSpec& spec() const { return spec_; }
    Way way() const { return way_; }  // of the forward pass

    // No operand overlaps dst.
    void forward(const LinearForward& tensors) const;
    void backward(const PlainLinearGradients& tensors) const;

private:
    struct Forward;
    struct Backward;

    const Forward& forward_passes() const;
    const Backward& backward_passes() const;
    void run_narrow(const LinearForward& tensors) const;
    void run_swapped(const LinearForward& tensors) const;
    void run_packed(const LinearForward& tensors) const;
    void run_rows(const LinearForward& tensors) const;

    LinearSpec spec_;
    bool fortran_weights_;
    Way way_;
    // Made by the first call that needs them.
    mutable std::once_flag narrow_made_;
    mutable std::once_flag forward_made_;
    mutable std::once_flag backward_made_;
    mutable std::optional<NarrowProduct> narrow_;
    mutable std::shared_ptr<const Forward> forward_ = nullptr;
    mutable std::shared_ptr<const Backward> backward_ = nullptr;
    std::shared_ptr<WorkspacePool> workspaces_ = WorkspacePool::shared();
};

std::string_view name_of(PlainLinear::Way way);

}  // namespace dlprim
