#include "primitives/linear/linear.h"

#include <stdexcept>

#include "primitives/linear/narrow_product.h"
#include "primitives/tensor/parallel.h"
#include "primitives/tensor/sample_pairs.h"

namespace dlprim {
namespace {

// Variants of every pass: what it is typically, and of the forward pass
constexpr std::int64_t kComplete = 0;
constexpr std::int64_t kWithoutActivation = 1;
constexpr std::int64_t kActivationOnly = 2;
// and of the backward-weights pass: a result that is not float32, rounded once.
constexpr std::int64_t kRounded = 1;

constexpr const char* kActivationSchedule = "K N64";

// A step that no loop exceeds.
constexpr std::int64_t kWhole = std::int64_t{1} << 60;

// Bound of the kernel's leading dimensions.
constexpr std::int64_t kMostChannels = std::int64_t{1} << 24;

LinearSpec validated(const LinearSpec& spec) {
    const LinearShape& shape = spec.shape;
    if (shape.N >= 0 && shape.C >= 0 && shape.K >= 0 && shape.C <= kMostChannels &&
        shape.K <= kMostChannels) {
        return spec;
    }
    throw std::invalid_argument("a linear layer of N=" + std::to_string(shape.N) + ", C=" +
                                std::to_string(shape.C) + ", K=" + std::to_string(shape.K) +
                                ", expected no extent below 0 and at most 2^24 channels");
}

Contraction forward_contraction(const LinearSpec& spec, const LinearProblem& problem,
                                std::int64_t variant) {
    if (variant == kActivationOnly) return linear_activation_contraction(problem, spec.activation);
    return linear_forward_contraction(
        problem, {.scale = is_int8(spec.dtype) ? Scale::column : Scale::none,
                  .bias = spec.bias,
                  .activation = variant == kComplete ? spec.activation : Activation::none});
}

Contraction weights_contraction(LinearProblem problem, std::int64_t variant) {
    problem.c_type = variant == kRounded ? problem.dtype : DType::f32;
    return linear_weights_contraction(problem);
}

// The same with the minibatch summed in one go.
Schedule with_whole_sum(const Schedule& schedule) {
    Schedule whole;
    for (const Level& level : schedule.levels) {
        if (level.letter != 'n') whole.levels.push_back(level);
    }
    whole.levels.push_back({.letter = 'n', .step = kWhole});
    return whole;
}

ContractionRules forward_rules(const LinearSpec& spec, const LinearProblem& problem) {
    return {.contraction =
                [=](std::int64_t variant) { return forward_contraction(spec, problem, variant); },
            .adapted =
                [](std::int64_t variant, const Schedule& schedule) {
                    return variant == kActivationOnly ? parse_schedule(kActivationSchedule)
                                                      : schedule;
                }};
}

ContractionRules data_rules(const LinearProblem& problem) {
    return {.contraction = [=](std::int64_t) { return linear_data_contraction(problem); }};
}

ContractionRules weights_rules(const LinearProblem& problem) {
    return {
        .contraction = [=](std::int64_t variant) { return weights_contraction(problem, variant); },
        .adapted =
            [](std::int64_t variant, const Schedule& schedule) {
                return variant == kRounded ? with_whole_sum(schedule) : schedule;
            }};
}

std::int64_t pairs_bytes(const LinearProblem& problem, std::int64_t channels) {
    if (problem.dtype != DType::bf16) return 0;
    const ChannelBlocks blocks = linear_blocks(channels);
    return aligned(rounded_up(problem.shape.N, 2) * blocks.count() * blocks.block *
                   size_of(problem.dtype));
}

}  // namespace

Linear::Linear(const LinearSpec& spec)
    : spec_(validated(spec)),
      problem_{spec.shape, spec.dtype, spec.dst_dtype, spec.layout},
      // A bfloat16 sum must not be rounded before its activation.
      is_narrow_(is_narrow(problem_) &&
                 (spec.dtype == DType::f32 || spec.activation == Activation::none)),
      src_pairs_bytes_(pairs_bytes(problem_, spec.shape.C)),
      dst_pairs_bytes_(pairs_bytes(problem_, spec.shape.K)) {
    passes_.try_emplace(PassKind::forward, forward_rules(spec_, problem_));
    if (!has_backward()) return;
    passes_.try_emplace(PassKind::backward_data, data_rules(problem_));
    passes_.try_emplace(PassKind::backward_weights, weights_rules(problem_));
}

std::vector<PassKind> Linear::passes() const {
    std::vector<PassKind> passes;
    for (const auto& [pass, scheduled] : passes_) passes.push_back(pass);
    return passes;
}

void Linear::run(PassKind pass, std::int64_t variant, const ContractionOperands& operands) const {
    const auto plan = passes_.at(pass).plan(variant);
    const int threads = num_threads();
    const WorkspacePool::Lease scratch(*workspaces_, plan->scratch_bytes() * threads);
    plan->run(operands, scratch.data(), threads);
}

void Linear::forward(const LinearForward& tensors) const {
    const bool keeps_argument = tensors.before_activation != nullptr;
    void* const product = keeps_argument ? tensors.before_activation : tensors.dst;
    if (is_narrow_) {
        const WorkspacePool::Lease scratch(*workspaces_,
                                           narrow_scratch_floats(problem_) * size_of(DType::f32));
        narrow_product(problem_, {tensors.src, tensors.weights, tensors.bias, product},
                       reinterpret_cast<float*>(scratch.data()));
    } else {
        run(PassKind::forward, keeps_argument ? kWithoutActivation : kComplete,
            {.a = tensors.src,
             .b = tensors.weights,
             .c = product,
             .scale = tensors.scale,
             .bias = tensors.bias});
    }
    if (keeps_argument || (is_narrow_ && spec_.activation != Activation::none)) {
        run(PassKind::forward, kActivationOnly, {.c = tensors.dst, .residual = product});
    }
}

void Linear::backward_data(const void* diff_dst, const void* weights, void* diff_src) const {
    run(PassKind::backward_data, kComplete, {.a = diff_dst, .b = weights, .c = diff_src});
}

void Linear::backward_weights(const void* src, const void* diff_dst, DType to,
                              void* diff_weights) const {
    const std::int64_t variant = to == DType::f32 ? kComplete : kRounded;
    const WorkspacePool::Lease pairs(*workspaces_, dst_pairs_bytes_ + src_pairs_bytes_);
    ContractionOperands operands{.a = diff_dst, .b = src, .c = diff_weights};
    if (spec_.dtype == DType::bf16) {
        const auto [N, C, K] = spec_.shape;
        char* const src_pairs = pairs.data() + dst_pairs_bytes_;
        pack_sample_pairs(linear_activations(N, K, spec_.dtype), spec_.layout, diff_dst,
                          pairs.data());
        pack_sample_pairs(linear_activations(N, C, spec_.dtype), spec_.layout, src, src_pairs);
        operands.a = pairs.data();
        operands.b = src_pairs;
    }
    run(PassKind::backward_weights, variant, operands);
}

void Linear::backward_activation(ActivationBackward problem) const {
    problem.tensor = linear_activations(spec_.shape.N, spec_.shape.K, spec_.dtype);
    problem.layout = spec_.layout;
    problem.activation = spec_.activation;
    const bool sums = problem.diff_bias != nullptr && spec_.shape.K > 0;
    const std::int64_t bytes =
        !sums ? 0 : activation_backward_scratch_bytes(problem.tensor, problem.layout);
    const WorkspacePool::Lease scratch(*workspaces_, bytes);
    activation_backward(problem, scratch.data());
}

std::int64_t Linear::scratch_bytes(PassKind pass) const {
    const bool pairs = pass == PassKind::backward_weights;
    return (pairs ? dst_pairs_bytes_ + src_pairs_bytes_ : 0) +
           passes_.at(pass).typical_plan()->scratch_bytes() * num_threads();
}

std::string Linear::describe() const {
    const ChannelBlocks in = depth_blocks(spec_.shape.C, spec_.dtype);
    const ChannelBlocks out = linear_blocks(spec_.shape.K);
    std::string text = "blocks: C " + std::to_string(in.count()) + " x " +
                       std::to_string(in.block) + ", K " + std::to_string(out.count()) + " x " +
                       std::to_string(out.block) + "\n";
    for (const auto& [pass, scheduled] : passes_) {
        text += described(std::string(name_of(pass)), scheduled);
    }
    return text;
}

}  // namespace dlprim
