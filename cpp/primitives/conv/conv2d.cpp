#include "primitives/conv/conv2d.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "jit/isa.h"
#include "primitives/conv/conv_weights_sum.h"
#include "primitives/conv/joined_weights.h"
#include "primitives/depthwise/depthwise.h"
#include "primitives/nest/contraction_plan.h"
#include "primitives/nest/schedule_cost.h"
#include "primitives/tensor/pack_rows.h"
#include "primitives/tensor/parallel.h"

namespace dlprim {
namespace {

// Variants of the forward pass.
constexpr int kWithResidual = 1;
constexpr int kWithMask = 2;
constexpr int kWithoutActivation = 4;
constexpr int kActivationOnly = 8;
constexpr int kOneImageInFloat32 = 16;  // with kActivationOnly
constexpr int kContinued = 32;          // adds to what stands in dst

// Variant of the backward-data pass.
constexpr int kWithCells = 1;

// Variants of the backward-weights pass: its parts.
constexpr std::int64_t kSlices = 3;  // all, or one of two

std::int64_t variant_of(const WeightsPart& part) { return part.images * kSlices + part.slice + 1; }

WeightsPart part_of(std::int64_t variant) {
    return {variant / kSlices, static_cast<int>(variant % kSlices) - 1};
}

// Bound of the kernel's leading dimensions.
constexpr std::int64_t kMostApart = std::int64_t{1} << 24;

constexpr const char* kActivationSchedule = "G N K P";

// Rows of the kernel's operands are pixels of one image row, or channels.
void require_kernel_limits(const ConvSpec& spec) {
    const ConvShape& shape = spec.shape;
    const bool nhwc = spec.layout == Format::nhwc;
    const std::int64_t src_pixel = nhwc ? shape.C : src_blocks(shape).block;
    const std::int64_t dst_pixel = nhwc ? shape.K : dst_blocks(shape).block;
    const std::int64_t apart = shape.Q() > 1 ? shape.stride_w * src_pixel : src_pixel;
    if (std::max(apart, dst_pixel) <= kMostApart && shape.H <= kMostApart &&
        shape.P() <= kMostApart) {
        return;
    }
    throw std::invalid_argument(
        "neighbouring pixels of a result are " + std::to_string(apart) + " elements of src and " +
        std::to_string(dst_pixel) + " of dst apart (C=" + std::to_string(shape.C) +
        ", K=" + std::to_string(shape.K) + ", stride_w=" + std::to_string(shape.stride_w) +
        (nhwc ? ", channels-last" : ", blocked") + "), and images have " + std::to_string(shape.H) +
        " and " + std::to_string(shape.P()) + " rows, expected at most 2^24 of each");
}

ConvSpec within_limits(ConvSpec spec) {
    spec.shape = validated(spec.shape);
    require_kernel_limits(spec);
    return spec;
}

}  // namespace

Conv2d::Conv2d(const ConvSpec& spec) : spec_{within_limits(spec)}, winograd_(spec) {
    if (spec.shape.is_depthwise()) return;
    weights_sum_ = std::make_unique<WeightsSum>(*this);
    for (const PassKind pass :
         {PassKind::forward, PassKind::backward_data, PassKind::backward_weights}) {
        if (!winograd_.runs(pass)) schedules_[pass] = candidates(pass, 1).front();
    }
}

Conv2d::~Conv2d() = default;

Contraction Conv2d::contraction(PassKind pass, std::int64_t variant) const {
    const ConvProblem problem{spec_.shape, spec_.dtype, spec_.layout};
    switch (pass) {
        case PassKind::forward: return forward_variant(problem, variant);
        case PassKind::backward_data:
            if (prefers_windows(problem)) return window_data_contraction(problem);
            return variant == kWithCells ? cell_data_contraction(problem)
                                         : backward_data_contraction(problem);
        default: return weights_contraction(problem, part_of(variant));
    }
}

Contraction Conv2d::forward_variant(const ConvProblem& problem, std::int64_t variant) const {
    Epilogue epilogue{.activation = spec_.activation, .relu_mask = (variant & kWithMask) != 0};
    if ((variant & kOneImageInFloat32) != 0) {
        ConvShape one = problem.shape;
        one.N = 1;
        return activation_contraction({one, DType::f32, problem.layout}, epilogue);
    }
    if ((variant & kActivationOnly) != 0) return activation_contraction(problem, epilogue);
    epilogue.bias = spec_.bias;
    epilogue.residual = (variant & kWithResidual) != 0;
    if ((variant & kWithoutActivation) != 0) epilogue.activation = Activation::none;
    Contraction made = forward_contraction(problem, epilogue);
    made.accumulates = (variant & kContinued) != 0;
    return made;
}

std::shared_ptr<const ContractionPlan> Conv2d::plan(PassKind pass, std::int64_t variant) const {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<const ContractionPlan>& known = plans_[{pass, variant}];
    if (!known) {
        const bool alone = pass == PassKind::forward && (variant & kActivationOnly) != 0;
        known = std::make_shared<ContractionPlan>(
            contraction(pass, variant),
            alone ? parse_schedule(kActivationSchedule) : schedules_.at(pass));
    }
    return known;
}

std::shared_ptr<const ContractionPlan> Conv2d::plan(const WeightsPart& part) const {
    return plan(PassKind::backward_weights, variant_of(part));
}

bool Conv2d::activates_afterwards(bool relu_mask) const {
    const ConvShape& shape = spec_.shape;
    if (shape.is_depthwise()) {
        return relu_mask ||
               (spec_.activation != Activation::none && spec_.activation != Activation::relu);
    }
    if (winograd_.runs(PassKind::forward)) {
        return relu_mask ||
               (spec_.activation != Activation::none && spec_.activation != Activation::relu);
    }
    const bool shares_bytes =
        spec_.layout == Format::nhwc && shape.groups > 1 && shape.group_K() % 8 != 0;
    return relu_mask && shares_bytes;
}

std::shared_ptr<const ContractionPlan> Conv2d::one_image_activation(bool relu_mask) const {
    return plan(PassKind::forward,
                kActivationOnly | kOneImageInFloat32 | (relu_mask ? kWithMask : 0));
}

void Conv2d::activate(const ConvForward& tensors) const {
    const int mask = tensors.relu_mask != nullptr ? kWithMask : 0;
    plan(PassKind::forward, kActivationOnly | mask)
        ->run({.c = tensors.dst, .relu_mask = tensors.relu_mask, .accumulate = true}, nullptr,
              num_threads());
}

void Conv2d::multiply_forward(const ConvForward& tensors, std::int64_t variant) const {
    const ConvProblem problem{spec_.shape, spec_.dtype, spec_.layout};
    auto made = plan(PassKind::forward, variant);
    // Where sums pass through dst, a residual that stands there is continued, not added at last.
    const bool in_place = tensors.residual != nullptr && tensors.residual == tensors.dst;
    const bool continues = in_place && made->sums_pass_through_c();
    if (continues) made = plan(PassKind::forward, (variant & ~kWithResidual) | kContinued);
    const std::int64_t joined = joined_bytes();
    const int threads = num_threads();
    const WorkspacePool::Lease scratch(*workspaces_, joined + made->scratch_bytes() * threads);
    if (joined > 0) join_weights(problem, tensors.weights, scratch.data());
    made->run({.a = tensors.src,
               .b = joined > 0 ? scratch.data() : tensors.weights,
               .c = tensors.dst,
               .bias = tensors.bias,
               .residual = continues ? nullptr : tensors.residual,
               .relu_mask = tensors.relu_mask,
               .accumulate = continues},
              scratch.data() + joined, threads);
}

void Conv2d::forward(const ConvForward& tensors) const {
    const bool afterwards = activates_afterwards(tensors.relu_mask != nullptr);
    const bool is_depthwise = spec_.shape.is_depthwise();
    if (afterwards && is_depthwise && spec_.dtype != DType::f32) {
        depthwise_through_float32(tensors);
        return;
    }
    if (is_depthwise) {
        depthwise_forward({spec_.shape, spec_.dtype, spec_.layout},
                          {.src = tensors.src,
                           .weights = tensors.weights,
                           .bias = tensors.bias,
                           .residual = tensors.residual,
                           .relu = spec_.activation == Activation::relu && !afterwards,
                           .dst = tensors.dst});
    } else if (winograd_.runs(PassKind::forward)) {
        forward_winograd(tensors, spec_.activation == Activation::relu);
    } else {
        int variant = tensors.residual != nullptr ? kWithResidual : 0;
        if (afterwards) {
            variant |= kWithoutActivation;
        } else if (tensors.relu_mask != nullptr) {
            variant |= kWithMask;
        }
        multiply_forward(tensors, variant);
    }
    if (afterwards) activate(tensors);
}

void Conv2d::backward_data(const void* diff_dst, const void* weights, void* diff_src,
                           const float* transformed) const {
    if (winograd_.runs(PassKind::backward_data)) {
        backward_data_winograd(diff_dst, weights, diff_src, transformed);
        return;
    }
    if (spec_.shape.is_depthwise()) {
        const WorkspacePool::Lease scratch(*workspaces_,
                                           depthwise_scratch_bytes(PassKind::backward_data));
        depthwise_backward_data({spec_.shape, spec_.dtype, spec_.layout}, diff_dst, weights,
                                diff_src, scratch.data());
        return;
    }
    const ConvProblem problem{spec_.shape, spec_.dtype, spec_.layout};
    const bool aligned_result = reinterpret_cast<std::intptr_t>(diff_src) % 64 == 0;
    const auto made = plan(PassKind::backward_data,
                           aligned_result ? typical_variant(PassKind::backward_data) : 0);
    const std::int64_t transposed = transposed_bytes();
    const int threads = num_threads();
    const WorkspacePool::Lease scratch(*workspaces_, transposed + made->scratch_bytes() * threads);
    if (spec_.shape.N > 0 && prefers_windows(problem)) {
        make_window_weights(problem, weights, scratch.data());
    } else if (spec_.shape.N > 0) {
        transpose_weights(spec_.shape, spec_.dtype, weights, scratch.data());
    }
    made->run({.a = diff_dst, .b = scratch.data(), .c = diff_src}, scratch.data() + transposed,
              threads);
}

void Conv2d::backward_weights(const void* src, const void* diff_dst, DType to,
                              void* diff_weights) const {
    if (spec_.shape.is_depthwise()) {
        const WorkspacePool::Lease scratch(*workspaces_,
                                           depthwise_scratch_bytes(PassKind::backward_weights));
        depthwise_backward_weights({spec_.shape, spec_.dtype, spec_.layout},
                                   {src, diff_dst, to, diff_weights}, scratch.data());
        return;
    }
    const int threads = num_threads();
    if (winograd_.runs(PassKind::backward_weights)) {
        const auto pass = winograd_.weights_pass();
        const WorkspacePool::Lease scratch(*workspaces_, pass->scratch_bytes(to, threads));
        pass->run(src, diff_dst, to, diff_weights, scratch.data(), threads);
    } else {
        const WorkspacePool::Lease scratch(*workspaces_, weights_sum_->scratch_bytes(to, threads));
        weights_sum_->run({src, diff_dst, to, diff_weights}, scratch.data(), threads);
    }
    clear_diff_weights_padding(spec_.shape, to, diff_weights);
}

std::int64_t Conv2d::joined_bytes() const {
    const ConvProblem problem{spec_.shape, spec_.dtype, spec_.layout};
    return needs_joined_weights(problem) ? aligned(joined_weights_bytes(problem)) : 0;
}

std::int64_t Conv2d::transposed_bytes() const {
    const ConvProblem problem{spec_.shape, spec_.dtype, spec_.layout};
    if (prefers_windows(problem)) return aligned(window_weights_bytes(problem));
    return aligned(transposed_weights_size(spec_.shape, spec_.dtype) * size_of(spec_.dtype));
}

std::int64_t Conv2d::scratch_bytes(PassKind pass) const {
    if (spec_.shape.is_depthwise()) return depthwise_scratch_bytes(pass);
    if (winograd_.runs(pass)) return winograd_scratch_bytes(pass);
    switch (pass) {
        case PassKind::forward:
            return joined_bytes() + plan(pass, 0)->scratch_bytes() * num_threads();
        case PassKind::backward_data:
            return transposed_bytes() + plan(pass, 0)->scratch_bytes() * num_threads();
        default: {
            const int threads = num_threads();
            return std::max(weights_sum_->scratch_bytes(DType::f32, threads),
                            weights_sum_->scratch_bytes(spec_.dtype, threads));
        }
    }
}

std::int64_t Conv2d::typical_variant(PassKind pass) const {
    if (pass == PassKind::backward_weights) return variant_of(weights_sum_->typical_part());
    const bool cells =
        pass == PassKind::backward_data && has_cells({spec_.shape, spec_.dtype, spec_.layout});
    return cells ? kWithCells : 0;
}

}  // namespace dlprim
