// A convolution on the arrays that people hold: x (N, C, H, W) or channels-last, weights
// (K, C/groups, R, S), nothing packed between calls. The passes are those of Conv2d. Channels-last
// images are read and written in place; others are brought into blocks and back in portions of a
// few images, so that what one step writes the next finds in the caches instead of in memory. A
// portion is no smaller than the weights, which every portion reads, and does not depend on the
// machine: gradients of the weights are the sums of the portions, in their order. Of images that a
// pointwise filter reads with strides the forward pass takes the pixels that are read.
//
// Results are the same bits for any number of threads. An object may be used by several threads at
// once.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>

#include "primitives/conv/conv_pass.h"
#include "primitives/reorder/reorder.h"

namespace dlprim {

class Conv2d;
struct ConvForward;  // conv2d.h

// All plain. Without diff_src, weights are not read; without diff_weights there is no diff_bias and
// no `saved`, and src is not read.
struct PlainConvGradients {
    const void* diff_dst = nullptr;
    const void* src = nullptr;
    const void* weights = nullptr;
    const void* saved = nullptr;  // the result of relu, or null: there was no activation
    void* diff_src = nullptr;
    void* diff_weights = nullptr;  // of the type of the convolution
    float* diff_bias = nullptr;
};

class PlainConv {
public:
    // Format::blocked stands for (N, C, H, W). Throws as Conv2d does.
    explicit PlainConv(const ConvSpec& spec);

    const ConvSpec& spec() const { return spec_; }
    std::int64_t portions() const { return portions_; }
    std::int64_t portion_images() const;  // the most
    // The convolution of such a portion, for its schedules.
    Conv2d& of_portion() const;

    // Without a mask or transformed weights; no operand overlaps dst.
    void forward(const ConvForward& tensors) const;
    void backward(const PlainConvGradients& tensors) const;

private:
    struct Portion;
    struct Portions;
    struct BackwardScratch;

    // `spec` is valid; forms of weights and diff_weights.
    PlainConv(const ConvSpec& spec, const TensorForm& weights, const TensorForm& gradient);

    const Portions& forward_portions() const;
    const Portions& backward_portions() const;

    ConvSpec spec_;
    std::int64_t portions_;
    mutable std::once_flag forward_made_;
    mutable std::once_flag backward_made_;
    mutable std::shared_ptr<const Portions> forward_ = nullptr;
    mutable std::shared_ptr<const Portions> backward_ = nullptr;
    Reorder weights_;
    Reorder diff_weights_;
    std::int64_t weights_bytes_;  // packed
    std::int64_t weights_elements_;
    std::shared_ptr<WorkspacePool> workspaces_ = WorkspacePool::shared();
};

}  // namespace dlprim
