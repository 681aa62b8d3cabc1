#include "primitives/linear/linear.h"

#include <bit>
#include <stdexcept>
#include <string_view>

#include "primitives/tensor/parallel.h"

namespace dlprim {
namespace {

// Variants of every pass: what it is typically, and of the forward pass
constexpr std::int64_t kComplete = 0;
constexpr std::int64_t kWithoutActivation = 1;
constexpr std::int64_t kActivationOnly = 2;
// and of the backward-weights pass: a result that is not float32, rounded once.
constexpr std::int64_t kRounded = 1;

constexpr const char* kEpilogueSchedule = "K N64";
// A step that no loop exceeds.
constexpr std::int64_t kWhole = std::int64_t{1} << 60;

LinearSpec validated(const LinearSpec& spec) {
    const LinearShape& shape = spec.shape;
    if (shape.N >= 0 && shape.C >= 0 && shape.K >= 0 && shape.C <= kMostLinearChannels &&
        shape.K <= kMostLinearChannels) {
        return spec;
    }
    throw std::invalid_argument("a linear layer of N=" + std::to_string(shape.N) + ", C=" +
                                std::to_string(shape.C) + ", K=" + std::to_string(shape.K) +
                                ", expected no extent below 0 and at most 2^24 channels");
}

Contraction forward_contraction(const LinearSpec& spec, const LinearProblem& problem,
                                std::int64_t variant) {
    if (variant == kActivationOnly) {
        return linear_epilogue_contraction(problem, {.activation = spec.activation});
    }
    const Epilogue epilogue{
        .int_bias = spec.int_bias,
        .bias = spec.bias,
        .activation = variant == kComplete ? spec.activation : Activation::none};
    return linear_forward_contraction(
        problem, is_int8(spec.dtype) ? quantized(epilogue, spec.dst_dtype) : epilogue);
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

ContractionRules forward_rules(const LinearSpec& spec, const LinearProblem& problem,
                               const WidenedProduct& widened) {
    return {.contraction =
                [=](std::int64_t variant) {
                    Contraction made = forward_contraction(spec, problem, variant);
                    return variant == kActivationOnly ? made : widened.of(std::move(made));
                },
            .adapted =
                [](std::int64_t variant, const Schedule& schedule) {
                    return variant == kActivationOnly ? parse_schedule(kEpilogueSchedule)
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

// One output channel; and a bfloat16 sum must not be rounded before its activation.
bool is_narrow(const LinearSpec& spec) {
    return spec.shape.K == 1 && spec.dst_dtype == spec.dtype &&
           (spec.dtype == DType::f32 ||
            (spec.dtype == DType::bf16 && spec.activation == Activation::none));
}

NarrowShape narrow_shape(const LinearSpec& spec) {
    const LinearShape& shape = spec.shape;
    const ChannelBlocks in = linear_blocks(shape.C);
    const SampleStrides from = sample_strides(spec.layout, shape.N, in);
    return {.dtype = spec.dtype,
            .rows = shape.N,
            .columns = shape.C,
            .block = in.block,
            .row_step = from.sample,
            .block_step = from.block,
            .bias = spec.bias,
            .out_row_step = sample_strides(spec.layout, shape.N, linear_blocks(1)).sample};
}

float widened(float value) { return value; }
float widened(std::uint16_t value) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(value) << 16);
}

// The weights of one output channel in order: of the two columns that it is stored as
// (linear_layout.h), the first.
template <class Element>
void widen_channel(const LinearShape& shape, const void* packed, float* weights) {
    constexpr std::int64_t group = sizeof(float) / sizeof(Element);  // along the sum, side by side
    const std::int64_t apart = linear_blocks(shape.K).block * group;
    for (std::int64_t c = 0; c < shape.C; ++c) {
        weights[c] = widened(static_cast<const Element*>(packed)[c / group * apart + c % group]);
    }
}

std::int64_t packed_bytes(const LinearProblem& problem, std::string_view name, DType dtype) {
    return linear_layout(problem.shape, problem.layout, name, dtype).bytes();
}

WidenedProduct widened_of(const LinearSpec& spec, const LinearProblem& problem) {
    if (!is_int8(spec.dtype)) return {};
    return {forward_contraction(spec, problem, kComplete), packed_bytes(problem, "src", spec.dtype),
            packed_bytes(problem, "weights", weights_type(spec.dtype))};
}

Layout pairs_of(const LinearProblem& problem, std::int64_t channels) {
    return sample_pairs_layout(problem.shape.N, channels, problem.dtype);
}

Layout samples_of(const LinearProblem& problem, std::int64_t channels) {
    return samples_layout(problem.layout, problem.shape.N, channels, problem.dtype);
}

std::int64_t pairs_bytes(const LinearProblem& problem, std::int64_t channels) {
    return problem.dtype == DType::bf16 ? aligned(pairs_of(problem, channels).bytes()) : 0;
}

}  // namespace

Linear::Linear(const LinearSpec& spec)
    : spec_(validated(spec)),
      problem_{spec.shape, spec.dtype, spec.dst_dtype, spec.layout},
      narrow_(is_narrow(spec) ? std::make_shared<NarrowProduct>(narrow_shape(spec_)) : nullptr),
      src_pairs_bytes_(pairs_bytes(problem_, spec.shape.C)),
      dst_pairs_bytes_(pairs_bytes(problem_, spec.shape.K)),
      src_pairs_(samples_of(problem_, spec.shape.C), pairs_of(problem_, spec.shape.C)),
      dst_pairs_(samples_of(problem_, spec.shape.K), pairs_of(problem_, spec.shape.K)),
      widened_(widened_of(spec_, problem_)) {
    passes_.try_emplace(PassKind::forward, forward_rules(spec_, problem_, widened_));
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
    const bool has_words = pass == PassKind::forward && variant != kActivationOnly;
    const std::int64_t words = has_words ? widened_.scratch_bytes() : 0;
    const WorkspacePool::Lease scratch(*workspaces_, words + plan->scratch_bytes() * threads);
    ContractionOperands taken = operands;
    if (has_words) widened_.widen(taken, scratch.data());
    plan->run(taken, scratch.data() + words, threads);
}

void Linear::forward(const LinearForward& tensors) const {
    const bool keeps_argument = tensors.before_activation != nullptr;
    void* const product = keeps_argument ? tensors.before_activation : tensors.dst;
    if (narrow_ != nullptr) {
        run_narrow(tensors, product);
    } else {
        run(PassKind::forward, keeps_argument ? kWithoutActivation : kComplete,
            {.a = tensors.src,
             .b = tensors.weights,
             .c = product,
             .int_bias = tensors.quantization.int_bias,
             .scale = tensors.quantization.scale,
             .bias = tensors.bias,
             .range = held_range(tensors.quantization.range, spec_.dst_dtype,
                                 keeps_argument ? Activation::none : spec_.activation)});
    }
    if (keeps_argument || (narrow_ != nullptr && spec_.activation != Activation::none)) {
        run(PassKind::forward, kActivationOnly, {.c = tensors.dst, .residual = product});
    }
}

void Linear::run_narrow(const LinearForward& tensors, void* product) const {
    const LinearShape& shape = spec_.shape;
    const WorkspacePool::Lease scratch(*workspaces_, spec_.shape.C * size_of(DType::f32));
    float* const weights = reinterpret_cast<float*>(scratch.data());
    const auto widen =
        spec_.dtype == DType::f32 ? widen_channel<float> : widen_channel<std::uint16_t>;
    widen(shape, tensors.weights, weights);
    narrow_->run({tensors.src, weights, tensors.bias, product});
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
        char* const src_pairs = pairs.data() + dst_pairs_bytes_;
        dst_pairs_.run(diff_dst, pairs.data());
        src_pairs_.run(src, src_pairs);
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
    if (pass == PassKind::forward && narrow_ != nullptr) {
        return spec_.shape.C * size_of(DType::f32) + narrow_->scratch_bytes();
    }
    const bool pairs = pass == PassKind::backward_weights;
    const std::int64_t words = pass == PassKind::forward ? widened_.scratch_bytes() : 0;
    return words + (pairs ? dst_pairs_bytes_ + src_pairs_bytes_ : 0) +
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
