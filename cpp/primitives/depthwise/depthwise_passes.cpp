#include "primitives/depthwise/depthwise_passes.h"

#include "primitives/conv/conv_activation.h"
#include "primitives/depthwise/depthwise.h"
#include "primitives/tensor/pack.h"

namespace dlprim {
namespace {

// Tensors of one image, and the weights, in float32.
struct Copies {
    std::int64_t src = 0;  // elements
    std::int64_t dst = 0;
    std::int64_t weights = 0;

    std::int64_t bytes() const { return (src + 2 * dst + weights) * size_of(DType::f32); }
};

Copies copies_of(const ConvSpec& spec) {
    const ConvShape& shape = spec.shape;
    const ChannelBlocks blocks = src_blocks(shape);
    return {activation_strides(spec.layout, blocks, shape.H, shape.W).image,
            activation_strides(spec.layout, blocks, shape.P(), shape.Q()).image,
            packed_weights_size(shape, DType::f32)};
}

void widen(const void* from, std::int64_t first, std::int64_t elements, float* to) {
    widen_to_f32(static_cast<const std::uint16_t*>(from) + first, to, elements);
}

ConvProblem one_float32_image(const ConvProblem& problem) {
    ConvProblem one{problem.shape, DType::f32, problem.layout};
    one.shape.N = 1;
    return one;
}

class DepthwiseForwardPass final : public ConvPass {
public:
    explicit DepthwiseForwardPass(const ConvSpec& spec)
        : problem_(spec.problem()),
          activation_(spec.activation),
          copies_(copies_of(spec)),
          activation_pass_(spec.problem(), spec.activation),
          image_activation_(one_float32_image(spec.problem()), spec.activation) {}

    void run(const ConvTensors& it) const override {
        const bool apart = activates_apart(activation_, it.relu_mask != nullptr);
        if (apart && problem_.dtype != DType::f32) return run_through_float32(it);
        depthwise_forward(problem_, it, !apart && activation_ == Activation::relu);
        if (apart) activation_pass_.run(it.result, it.relu_mask);
    }

    std::int64_t scratch_bytes() const override {
        const bool copies = problem_.dtype != DType::f32 && activation_ != Activation::none;
        return copies ? copies_.bytes() : 0;
    }

private:
    // An activation apart is a pass of its own, and a result is rounded once: so both passes run in
    // float32, one image at a time. The image of dst is copied as well, because what stands behind
    // its last channel stays.
    void run_through_float32(const ConvTensors& it) const {
        const WorkspacePool::Lease scratch(workspaces(), copies_.bytes());
        auto* const src = reinterpret_cast<float*>(scratch.data());
        float* const dst = src + copies_.src;
        float* const residual = dst + copies_.dst;
        float* const weights = residual + copies_.dst;
        const ConvProblem one = one_float32_image(problem_);
        if (problem_.shape.N > 0) widen(it.weights, 0, copies_.weights, weights);
        for (std::int64_t image = 0; image < problem_.shape.N; ++image) {
            const std::int64_t first_dst = image * copies_.dst;
            widen(it.src, image * copies_.src, copies_.src, src);
            widen(it.result, first_dst, copies_.dst, dst);
            if (it.residual != nullptr) widen(it.residual, first_dst, copies_.dst, residual);
            depthwise_forward(one,
                              {.src = src,
                               .weights = weights,
                               .bias = it.bias,
                               .residual = it.residual == nullptr ? nullptr : residual,
                               .result = dst},
                              false);
            image_activation_.run(dst, it.relu_mask == nullptr
                                           ? nullptr
                                           : it.relu_mask + image * image_activation_.mask_image());
            round_to_bf16(dst, static_cast<std::uint16_t*>(it.result) + first_dst, copies_.dst);
        }
    }

    ConvProblem problem_;
    Activation activation_;
    Copies copies_;
    ConvActivation activation_pass_;
    ConvActivation image_activation_;  // of one image in float32
};

class DepthwiseDataPass final : public ConvPass {
public:
    explicit DepthwiseDataPass(const ConvSpec& spec) : problem_(spec.problem()) {}

    void run(const ConvTensors& it) const override {
        const WorkspacePool::Lease scratch(workspaces(), scratch_bytes());
        depthwise_backward_data(problem_, it, scratch.data());
    }

    std::int64_t scratch_bytes() const override { return depthwise_data_scratch_bytes(problem_); }

private:
    ConvProblem problem_;
};

class DepthwiseWeightsPass final : public ConvPass {
public:
    explicit DepthwiseWeightsPass(const ConvSpec& spec) : problem_(spec.problem()) {}

    void run(const ConvTensors& it) const override {
        const WorkspacePool::Lease scratch(workspaces(), scratch_bytes());
        depthwise_backward_weights(problem_, it, scratch.data());
    }

    std::int64_t scratch_bytes() const override {
        return depthwise_weights_scratch_bytes(problem_);
    }

private:
    ConvProblem problem_;
};

}  // namespace

std::unique_ptr<ConvPass> depthwise_pass(const ConvSpec& spec, PassKind pass) {
    switch (pass) {
        case PassKind::forward: return std::make_unique<DepthwiseForwardPass>(spec);
        case PassKind::backward_data: return std::make_unique<DepthwiseDataPass>(spec);
        default: return std::make_unique<DepthwiseWeightsPass>(spec);
    }
}

}  // namespace dlprim
