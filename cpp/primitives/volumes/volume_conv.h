// A convolution along three axes on the arrays that people hold: x (N, C, D, H, W), weights
// (K, C/groups, T, R, S), nothing packed between calls. Each pass is a product of matrices that
// finds its own way (correlation.h, filter_gradient.h), for a few images at a time, so that what is
// copied of them stays in the caches; how many does not depend on the machine.
//
// Results are the same bits for any number of threads. An object may be used by several threads at
// once.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>

#include "jit/dtype.h"
#include "primitives/volumes/volume_shape.h"

namespace dlprim {

enum class PassKind : std::uint8_t;

struct VolumeConvSpec {
    VolumeShape shape = {};
    DType dtype = DType::f32;  // float32 or bfloat16
    bool bias = false;         // of the forward pass
};

struct VolumeGradients {
    const void* diff_dst = nullptr;
    const void* src = nullptr;
    void* diff_weights = nullptr;  // of the type of the convolution
    float* diff_bias = nullptr;
};

class VolumeConv {
public:
    explicit VolumeConv(const VolumeConvSpec& spec);
    VolumeConv(const VolumeConv&) = delete;
    VolumeConv& operator=(const VolumeConv&) = delete;
    ~VolumeConv();

    const VolumeConvSpec& spec() const { return spec_; }

    // Whether a pass is expected to be faster so than as one on images, for which slices of the
    // volumes are copied side by side.
    bool is_faster(PassKind pass) const;

    void forward(const void* src, const void* weights, const float* bias, void* dst) const;
    void backward_data(const void* diff_dst, const void* weights, void* diff_src) const;
    void backward_weights(const VolumeGradients& it) const;

private:
    class Forward;
    class Data;
    class Weights;

    const Forward& forward_pass() const;
    const Data& data_pass() const;
    const Weights& weights_pass() const;

    VolumeConvSpec spec_;
    // Made by the first call that needs them.
    mutable std::once_flag forward_made_;
    mutable std::once_flag data_made_;
    mutable std::once_flag weights_made_;
    mutable std::shared_ptr<const Forward> forward_ = nullptr;
    mutable std::shared_ptr<const Data> data_ = nullptr;
    mutable std::shared_ptr<const Weights> weights_ = nullptr;
};

}  // namespace dlprim
