// What a convolution is, as its maker says it before anything is chosen, and one pass of it as an
// object: everything that its shape decides is found out when it is made, so that a call looks up a
// plan, takes scratch and runs. Which kind of pass it is, direct, Winograd or depthwise, only its
// maker knows.
#pragma once

#include <cstdint>
#include <memory>

#include "brgemm/spec.h"
#include "primitives/conv/conv_layout.h"
#include "primitives/nest/scheduled_pass.h"
#include "primitives/tensor/workspace.h"

namespace dlprim {

enum class ConvAlgorithm : std::uint8_t {
    direct,
    winograd,   // refused where it cannot be done
    automatic,  // whichever is faster by estimate, pass by pass
};

struct ConvSpec {
    ConvShape shape = {};
    DType dtype = DType::f32;      // of src: or bf16, or u8 or s8 for the forward pass alone
    DType dst_dtype = DType::f32;  // for 8-bit src: f32, bf16, s32, u8 or s8; else dst is as src
    Format layout = Format::blocked;
    Activation activation = Activation::none;
    bool bias = false;
    bool int_bias = false;  // for 8-bit src
    ConvAlgorithm algorithm = ConvAlgorithm::direct;
    bool high_accuracy = false;  // of Winograd: tiles of 2, whose errors are below direct ones

    ConvProblem problem() const { return {shape, dtype, layout, dst_dtype}; }
};

// Of all passes: each reads what it needs and writes `result`, which is dst, diff_src or
// diff_weights.
struct ConvTensors {
    const void* src = nullptr;
    const void* diff_dst = nullptr;
    const void* weights = nullptr;
    const float* bias = nullptr;        // K values where the spec has a bias
    const void* residual = nullptr;     // as dst, or dst itself, or null
    std::uint8_t* relu_mask = nullptr;  // or null; rows of ceil(block / 8) bytes per pixel
    // Of Winograd: transform_weights() of the weights, which then are not read; or null.
    const float* transformed = nullptr;
    Quantization quantization = {};  // for 8-bit src
    DType to = DType::f32;           // of diff_weights
    void* result = nullptr;
};

class ConvPass {
public:
    virtual ~ConvPass() = default;

    virtual void run(const ConvTensors& tensors) const = 0;

    // The most bytes beside operands and results that a call uses with the present number of
    // threads.
    virtual std::int64_t scratch_bytes() const = 0;

    // Null: a fixed nest without a kernel.
    virtual ScheduledNest* nest() const { return nullptr; }

    // Of Winograd: floats of the transformed weights, and packed weights to those.
    virtual std::int64_t transformed_floats() const { return 0; }
    virtual void transform_weights(const void* /*weights*/, float* /*transformed*/) const {}

protected:
    ConvPass() = default;
    ConvPass(const ConvPass&) = delete;
    ConvPass& operator=(const ConvPass&) = delete;

    WorkspacePool& workspaces() const { return *workspaces_; }

private:
    std::shared_ptr<WorkspacePool> workspaces_ = WorkspacePool::shared();
};

// Around the kernel (conv_contraction.h), run by the one driver.
std::unique_ptr<ConvPass> direct_forward_pass(const ConvSpec& spec);
std::unique_ptr<ConvPass> direct_data_pass(const ConvSpec& spec);
std::unique_ptr<ConvPass> direct_weights_pass(const ConvSpec& spec);
// Of 8-bit channels-last images with rows of a few pixels, as products of patches.
bool takes_patches(const ConvProblem& problem);
std::unique_ptr<ConvPass> patched_forward_pass(const ConvSpec& spec);
// Of 8-bit operands without padding, and one of these, from its maker, where there is padding.
std::unique_ptr<ConvPass> quantized_forward_pass(const ConvSpec& spec);
using MakeConvPass = std::unique_ptr<ConvPass> (*)(const ConvSpec& spec);
std::unique_ptr<ConvPass> rimmed_forward_pass(const ConvSpec& spec, MakeConvPass make);

}  // namespace dlprim
