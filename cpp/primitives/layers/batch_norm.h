// Batch normalisation over activations of either layout: dst = relu((src - mean) * inverse_std *
// weight + bias + residual), by channel, with statistics of the minibatch or given ones, and its
// gradients. All of it is bound by memory: statistics read src once, normalising reads it again and
// writes dst, and where blocks of channels are apart, each block runs both passes while the caches
// still hold it. Source: arXiv 1502.03167, algorithm 1.
#pragma once

#include <cstdint>

#include "primitives/tensor/channel_blocks.h"
#include "primitives/tensor/layout.h"

namespace dlprim {

// Per-channel arrays are float32 with one value per channel. Padding channels are neither read nor
// written.
struct BatchNorm {
    Activations tensor;  // shape and type of src
    Format layout = Format::blocked;
    bool relu = false;
    float epsilon = 1e-5F;
};

struct BatchNormForward {
    const void* src = nullptr;
    const float* weight = nullptr;   // or null: ones
    const float* bias = nullptr;     // or null: zeros
    const void* residual = nullptr;  // or null
    // Given statistics, or null where those of the minibatch are taken.
    const float* given_mean = nullptr;
    const float* given_variance = nullptr;
    void* dst = nullptr;                // may be src or residual; null: statistics are all
    std::uint8_t* relu_mask = nullptr;  // or null; a bit per element as in activation_backward.h
    float* mean = nullptr;              // used; written in both cases
    float* inverse_std = nullptr;
    float* variance = nullptr;  // or null; of the minibatch, biased; only without given statistics
};

struct BatchNormBackward {
    const void* diff_dst = nullptr;
    // Added to diff_dst in front of all else; or null. Only beside diff_residual, which holds what
    // passed of the sum.
    const void* diff_addend = nullptr;
    const void* src = nullptr;
    const float* mean = nullptr;
    const float* inverse_std = nullptr;
    const float* weight = nullptr;  // or null: ones
    // With relu one of the three tells what passed it: dst, the mask, or bias (without a residual),
    // from which dst's sign is computed again. Ignored without relu.
    const void* dst = nullptr;
    const std::uint8_t* relu_mask = nullptr;
    const float* bias = nullptr;  // or null: zeros
    bool is_given = false;        // the statistics did not depend on src
    // Of a larger minibatch that src is a part of: the sums over it that diff_weight and diff_bias
    // are, and its pixels. Where they are given, diff_residual holds what passed relu already.
    const float* given_diff_weight = nullptr;
    const float* given_diff_bias = nullptr;
    double given_pixels = 0;
    void* diff_src = nullptr;  // may be src or diff_dst; null: the other results are all
    // What passed relu; or null. May be diff_dst.
    void* diff_residual = nullptr;
    float* diff_weight = nullptr;  // these two are written unless they are given
    float* diff_bias = nullptr;
};

// Sums are float32 within some hundred pixels, about the first of them, and combined as a tree:
// large means cost no accuracy. Of an empty minibatch mean, variance and gradients are zero.
void batch_norm_forward(const BatchNorm& norm, const BatchNormForward& tensors);
void batch_norm_backward(const BatchNorm& norm, const BatchNormBackward& tensors);

}  // namespace dlprim
