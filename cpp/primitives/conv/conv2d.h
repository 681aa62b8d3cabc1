// A two-dimensional convolution whose shape is fixed once: forward, backward-data and
// backward-weights on packed operands (conv_layout.h). Each pass is an object (conv_pass.h) that is
// chosen when the convolution is made. Most are a Contraction around the kernel, executed by the
// one driver in the order of a Schedule that a cost model picks and that can be replaced; 3x3
// filters with stride 1 can run as Winograd convolution instead, which is the same passes with
// fewer multiplications; depthwise convolutions, which are no products of matrices, have their own
// nest. Source of the algorithm: arXiv 1906.06440, section on convolutions.
//
// Results are the same bits from run to run and for any number of threads: a sum that is split is
// split by the shape and, in bfloat16, the L2 cache of the CPU. An object may be used by several
// threads at once.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "primitives/conv/conv_pass.h"
#include "primitives/layers/activation_backward.h"
#include "primitives/winograd/winograd_choice.h"

namespace dlprim {

// As ConvTensors has them.
struct ConvForward {
    const void* src = nullptr;
    const void* weights = nullptr;
    const float* bias = nullptr;
    const void* residual = nullptr;
    std::uint8_t* relu_mask = nullptr;
    const float* transformed = nullptr;
    Quantization quantization = {};
    void* dst = nullptr;
};

class Conv2d {
public:
    // Throws std::invalid_argument for an impossible shape, see validated(ConvShape).
    explicit Conv2d(const ConvSpec& spec);

    const ConvSpec& spec() const { return spec_; }
    // 8-bit convolutions have the forward pass alone.
    std::vector<PassKind> passes() const;

    // Operands must not overlap results, but the residual may be dst.
    void forward(const ConvForward& tensors) const;
    // `transformed` as in ConvForward.
    void backward_data(const void* diff_dst, const void* weights, void* diff_src,
                       const float* transformed = nullptr) const;
    // diff_weights of type `to`, float32 or the type of the convolution.
    void backward_weights(const void* src, const void* diff_dst, DType to,
                          void* diff_weights) const;

    // activation_backward() of relu of a tensor like dst, which is filled in here.
    void backward_relu(ActivationBackward problem) const;

    // "direct", "winograd4" or "winograd2": with tiles of 4 or 2.
    std::string algorithm(PassKind pass) const { return choice(pass).name(); }
    // Floats of the transformed weights of Winograd's forward or backward-data pass, 0 where the
    // pass does not run so; and packed weights to those.
    std::int64_t transformed_floats(PassKind pass) const {
        return choice(pass).tile == 0 ? 0 : this->pass(pass).transformed_floats();
    }
    void transform_weights(PassKind pass, const void* weights, float* transformed) const {
        this->pass(pass).transform_weights(weights, transformed);
    }

    // The most bytes beside operands and results that a call uses with the present number of
    // threads: with a relu mask, or for diff_weights in bfloat16, where these take more. They are
    // taken from the system once and kept.
    std::int64_t scratch_bytes(PassKind pass) const { return this->pass(pass).scratch_bytes(); }
    std::int64_t relu_scratch_bytes() const;

    // A depthwise convolution has none: refused with std::invalid_argument.
    Schedule schedule(PassKind pass) const { return nest(pass).schedule(); }
    void set_schedule(PassKind pass, const Schedule& schedule) {
        nest(pass).set_schedule(schedule);
    }
    std::vector<Loop> loops(PassKind pass) const { return nest(pass).loops(); }
    // What the cost model ranks highest, the best first.
    std::vector<Schedule> candidates(PassKind pass, int count) const {
        return nest(pass).candidates(count);
    }

    std::string describe() const;

private:
    static std::size_t index(PassKind pass) { return static_cast<std::size_t>(pass); }
    ScheduledNest& nest(PassKind pass) const;
    Activations dst_activations() const;

    ConvSpec spec_;
    // Made when it is first asked for: who infers runs one of the three.
    struct Pass {
        std::once_flag chosen = {};
        std::once_flag made = {};
        WinogradChoice choice = {};
        std::unique_ptr<ConvPass> run = nullptr;
    };
    const WinogradChoice& choice(PassKind pass) const;
    const ConvPass& pass(PassKind pass) const;
    mutable std::array<Pass, 3> passes_;
    std::shared_ptr<WorkspacePool> workspaces_ = WorkspacePool::shared();
};

}  // namespace dlprim
