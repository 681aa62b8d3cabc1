// A linear (fully connected) layer whose shape is fixed once: dst = activation(src * weights^T +
// bias), and its gradients, on the operands of linear_layout.h. Each pass is a Contraction that the
// one driver runs in the order of a Schedule. Source of the algorithm: arXiv 1906.06440, section on
// fully connected layers.
//
// Results are the same bits from run to run and for any number of threads. An object may be used
// by several threads at once.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "primitives/layers/activation_backward.h"
#include "primitives/linear/linear_contraction.h"
#include "primitives/nest/scheduled_pass.h"
#include "primitives/nest/widened_product.h"
#include "primitives/programs/narrow_product.h"
#include "primitives/reorder/reorder.h"
#include "primitives/tensor/workspace.h"

namespace dlprim {

struct LinearSpec {
    LinearShape shape = {};
    DType dtype = DType::f32;  // of src: f32, bf16, or u8 or s8 for the forward pass alone
    // Of dst: as src, or f32 for bf16 src; f32, bf16, s32, u8 or s8 for 8-bit src.
    DType dst_dtype = DType::f32;
    Format layout = Format::blocked;
    Activation activation = Activation::none;
    bool bias = false;
    bool int_bias = false;  // for 8-bit src
};

struct LinearForward {
    const void* src = nullptr;
    const void* weights = nullptr;   // begins with the forward form
    const float* bias = nullptr;     // K values where the spec has a bias
    Quantization quantization = {};  // for 8-bit src
    void* dst = nullptr;
    // Or null: receives what the activation is applied to, in the type of dst. dst is then the
    // activation of the rounded value.
    void* before_activation = nullptr;
};

class Linear {
public:
    // Throws std::invalid_argument for an extent below 0 or channels beyond 2^24.
    explicit Linear(const LinearSpec& spec);

    const LinearSpec& spec() const { return spec_; }
    // Layers of 8 bits, and those whose result is of another type, have the forward pass alone.
    bool has_backward() const { return !is_int8(spec_.dtype) && spec_.dst_dtype == spec_.dtype; }
    std::vector<PassKind> passes() const;

    // Operands must not overlap results.
    void forward(const LinearForward& tensors) const;
    // `weights` is the backward form.
    void backward_data(const void* diff_dst, const void* weights, void* diff_src) const;
    // diff_weights of type `to`, float32 or the type of the layer, [Cb][Kb][bk][bc].
    void backward_weights(const void* src, const void* diff_dst, DType to,
                          void* diff_weights) const;

    // activation_backward() of a tensor like dst; its shape, layout and activation are filled in
    // here.
    void backward_activation(ActivationBackward problem) const;

    // Bytes beside operands and results that a call uses with the present number of threads, with
    // diff_weights in float32.
    std::int64_t scratch_bytes(PassKind pass) const;

    // Of passes() only.
    Schedule schedule(PassKind pass) const { return passes_.at(pass).schedule(); }
    void set_schedule(PassKind pass, const Schedule& schedule) {
        passes_.at(pass).set_schedule(schedule);
    }
    std::vector<Loop> loops(PassKind pass) const { return passes_.at(pass).loops(); }
    // What the cost model ranks highest, the best first.
    std::vector<Schedule> candidates(PassKind pass, int count) const {
        return passes_.at(pass).candidates(count);
    }

    std::string describe() const;

private:
    void run(PassKind pass, std::int64_t variant, const ContractionOperands& operands) const;
    void run_narrow(const LinearForward& tensors, void* product) const;

    LinearSpec spec_;
    LinearProblem problem_;
    std::shared_ptr<const NarrowProduct> narrow_;  // what the forward pass is, or null
    // Of src and dst as the sums over the minibatch read them: bfloat16 in pairs of samples.
    std::int64_t src_pairs_bytes_ = 0;
    std::int64_t dst_pairs_bytes_ = 0;
    Reorder src_pairs_;
    Reorder dst_pairs_;
    WidenedProduct widened_;  // of the forward pass
    std::map<PassKind, ScheduledPass> passes_;
    std::shared_ptr<WorkspacePool> workspaces_ = WorkspacePool::shared();
};

}  // namespace dlprim
