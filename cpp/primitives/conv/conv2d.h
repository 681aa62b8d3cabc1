// A two-dimensional convolution whose shape is fixed once: forward, backward-data and
// backward-weights on packed operands (conv_layout.h). Each pass is a Contraction around the
// kernel, executed by the one driver in the order of a Schedule that a cost model picks and that
// can be replaced; 3x3 filters with stride 1 can run as Winograd convolution instead
// (conv_winograd.h), which is the same passes with fewer multiplications; depthwise convolutions,
// which are no products of matrices, have their own nest. Source of the algorithm: arXiv
// 1906.06440, section on convolutions.
//
// Results are the same bits from run to run and for any number of threads: a sum that is split is
// split by the shape and, in bfloat16, the L2 cache of the CPU. An object may be used by several
// threads at once.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "primitives/conv/conv_contraction.h"
#include "primitives/layers/relu_backward.h"
#include "primitives/nest/contraction_plan.h"
#include "primitives/nest/pass_kind.h"
#include "primitives/tensor/workspace.h"
#include "primitives/winograd/conv_winograd.h"

namespace dlprim {

enum class ConvAlgorithm : std::uint8_t {
    direct,
    winograd,   // refused where it cannot be done
    automatic,  // whichever is faster by estimate, pass by pass
};

struct ConvSpec {
    ConvShape shape = {};
    DType dtype = DType::f32;  // or bf16
    Format layout = Format::blocked;
    Activation activation = Activation::none;
    bool bias = false;
    ConvAlgorithm algorithm = ConvAlgorithm::direct;
    bool high_accuracy = false;  // of Winograd: tiles of 2, whose errors are below direct ones
};

struct ConvForward {
    const void* src = nullptr;
    const void* weights = nullptr;
    const float* bias = nullptr;        // K values where the spec has a bias
    const void* residual = nullptr;     // as dst, or dst itself, or null
    std::uint8_t* relu_mask = nullptr;  // or null; rows of ceil(block / 8) bytes per pixel
    // Of Winograd: transform_weights() of the weights, which then are not read; or null.
    const float* transformed = nullptr;
    void* dst = nullptr;
};

class WeightsSum;

class Conv2d {
public:
    // Throws std::invalid_argument for an impossible shape, see validated(ConvShape).
    explicit Conv2d(const ConvSpec& spec);
    ~Conv2d();

    const ConvSpec& spec() const { return spec_; }

    // Operands must not overlap results, but the residual may be dst.
    void forward(const ConvForward& tensors) const;
    // `transformed` as in ConvForward.
    void backward_data(const void* diff_dst, const void* weights, void* diff_src,
                       const float* transformed = nullptr) const;
    // diff_weights of type `to`, float32 or the type of the convolution.
    void backward_weights(const void* src, const void* diff_dst, DType to,
                          void* diff_weights) const;

    // relu_backward() of a tensor like dst; `tensor` and `layout` are filled in here.
    void backward_relu(ReluBackward problem) const;

    const ConvWinograd& winograd() const { return winograd_; }
    // Packed weights to those of Winograd's forward or backward-data pass,
    // winograd().transformed_floats() of them.
    void transform_weights(PassKind pass, const void* weights, float* transformed) const;

    // The most bytes beside operands and results that a call uses with the present number of
    // threads: with a relu mask, or for diff_weights in bfloat16, where these take more. They are
    // taken from the system once and kept.
    std::int64_t scratch_bytes(PassKind pass) const;
    std::int64_t relu_scratch_bytes() const;

    // A depthwise convolution has none: refused with std::invalid_argument.
    Schedule schedule(PassKind pass) const;
    void set_schedule(PassKind pass, const Schedule& schedule);
    std::vector<Loop> loops(PassKind pass) const;
    // What the cost model ranks highest, the best first.
    std::vector<Schedule> candidates(PassKind pass, int count) const;

    std::string describe() const;

private:
    friend class WeightsSum;

    // `variant` is what a plan depends on besides the pass: forward, the fused operands;
    // backward-weights, which sums.
    std::shared_ptr<const ContractionPlan> plan(PassKind pass, std::int64_t variant) const;
    std::shared_ptr<const ContractionPlan> plan(const WeightsPart& part) const;
    Contraction contraction(PassKind pass, std::int64_t variant) const;
    Contraction forward_variant(const ConvProblem& problem, std::int64_t variant) const;
    bool activates_afterwards(bool relu_mask) const;
    void activate(const ConvForward& tensors) const;
    std::shared_ptr<const ContractionPlan> one_image_activation(bool relu_mask) const;
    void depthwise_through_float32(const ConvForward& tensors) const;
    std::int64_t typical_variant(PassKind pass) const;
    void forward_winograd(const ConvForward& tensors, bool relu) const;
    void backward_data_winograd(const void* diff_dst, const void* weights, void* diff_src,
                                const float* transformed) const;
    std::int64_t winograd_scratch_bytes(PassKind pass) const;
    void multiply_forward(const ConvForward& tensors, std::int64_t variant) const;
    // Scratch of another form of the weights.
    std::int64_t joined_bytes() const;
    std::int64_t transposed_bytes() const;
    std::int64_t float32_copies_bytes() const;
    std::int64_t depthwise_scratch_bytes(PassKind pass) const;
    Activations dst_activations() const;
    void require_schedules() const;

    ConvSpec spec_;
    ConvWinograd winograd_;
    mutable std::mutex mutex_;
    mutable std::map<std::pair<PassKind, std::int64_t>, std::shared_ptr<const ContractionPlan>>
        plans_;
    std::map<PassKind, Schedule> schedules_;
    std::unique_ptr<const WeightsSum> weights_sum_;
    std::shared_ptr<WorkspacePool> workspaces_ = WorkspacePool::shared();
};

}  // namespace dlprim
