#include "primitives/linear/linear.h"

#include <stdexcept>

#include "primitives/layers/relu_backward.h"
#include "primitives/linear/linear_narrow.h"
#include "primitives/nest/contraction_plan.h"
#include "primitives/nest/schedule_cost.h"
#include "primitives/tensor/parallel.h"
#include "primitives/tensor/sample_pairs.h"

namespace dlprim {
namespace {

// Variants of the forward pass.
constexpr int kComplete = 0;
constexpr int kWithoutActivation = 1;
constexpr int kActivationOnly = 2;
// Variant of the backward-weights pass: a result that is not float32, rounded once.
constexpr int kRounded = 1;

constexpr const char* kActivationSchedule = "K N64";

// A step that no loop exceeds.
constexpr std::int64_t kWhole = std::int64_t{1} << 60;

// Bound of the kernel's leading dimensions.
constexpr std::int64_t kMostChannels = std::int64_t{1} << 24;

// The same with the minibatch summed in one go.
Schedule with_whole_sum(const Schedule& schedule) {
    Schedule whole;
    for (const Level& level : schedule.levels) {
        if (level.letter != 'n') whole.levels.push_back(level);
    }
    whole.levels.push_back({.letter = 'n', .step = kWhole});
    return whole;
}

void require_extents(const LinearShape& shape) {
    if (shape.N >= 0 && shape.C >= 0 && shape.K >= 0 && shape.C <= kMostChannels &&
        shape.K <= kMostChannels) {
        return;
    }
    throw std::invalid_argument("a linear layer of N=" + std::to_string(shape.N) + ", C=" +
                                std::to_string(shape.C) + ", K=" + std::to_string(shape.K) +
                                ", expected no extent below 0 and at most 2^24 channels");
}

}  // namespace

Linear::Linear(const LinearSpec& spec) : spec_(spec) {
    require_extents(spec.shape);
    for (const PassKind pass : passes()) schedules_[pass] = candidates(pass, 1).front();
}

std::vector<PassKind> Linear::passes() const {
    if (!has_backward()) return {PassKind::forward};
    return {kPassKinds.begin(), kPassKinds.end()};
}

Contraction Linear::contraction(PassKind pass, int variant) const {
    if (pass == PassKind::backward_data) return linear_data_contraction(problem());
    if (pass == PassKind::backward_weights) {
        LinearProblem gradient = problem();
        gradient.c_type = variant == kRounded ? spec_.dtype : DType::f32;
        return linear_weights_contraction(gradient);
    }
    if (variant == kActivationOnly) {
        return linear_activation_contraction(problem(), spec_.activation);
    }
    return linear_forward_contraction(
        problem(), {.scale = is_int8(spec_.dtype) ? Scale::column : Scale::none,
                    .bias = spec_.bias,
                    .activation = variant == kComplete ? spec_.activation : Activation::none});
}

std::shared_ptr<const ContractionPlan> Linear::plan(PassKind pass, int variant) const {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<const ContractionPlan>& known = plans_[{pass, variant}];
    if (!known) {
        Schedule schedule = schedules_.at(pass);
        if (pass == PassKind::forward && variant == kActivationOnly) {
            schedule = parse_schedule(kActivationSchedule);
        } else if (pass == PassKind::backward_weights && variant == kRounded) {
            schedule = with_whole_sum(schedule);
        }
        known = std::make_shared<ContractionPlan>(contraction(pass, variant), schedule);
    }
    return known;
}

void Linear::run_forward(const ContractionOperands& operands, int variant) const {
    const auto made = plan(PassKind::forward, variant);
    const int threads = num_threads();
    const WorkspacePool::Lease scratch(*workspaces_, made->scratch_bytes() * threads);
    made->run(operands, scratch.data(), threads);
}

LinearProblem Linear::problem() const {
    return {spec_.shape, spec_.dtype, spec_.dst_dtype, spec_.layout};
}

// A bfloat16 sum must not be rounded before its activation.
bool Linear::runs_narrow() const {
    return is_narrow(problem()) &&
           (spec_.dtype == DType::f32 || spec_.activation == Activation::none);
}

void Linear::forward(const LinearForward& tensors) const {
    if (runs_narrow()) {
        void* const argument =
            tensors.before_activation == nullptr ? tensors.dst : tensors.before_activation;
        narrow_forward(problem(), {tensors.src, tensors.weights, tensors.bias, argument});
        if (spec_.activation != Activation::none || argument != tensors.dst) {
            run_forward({.c = tensors.dst, .residual = argument}, kActivationOnly);
        }
        return;
    }
    ContractionOperands operands{.a = tensors.src,
                                 .b = tensors.weights,
                                 .c = tensors.dst,
                                 .scale = tensors.scale,
                                 .bias = tensors.bias};
    if (tensors.before_activation == nullptr) {
        run_forward(operands, kComplete);
        return;
    }
    operands.c = tensors.before_activation;
    run_forward(operands, kWithoutActivation);
    run_forward({.c = tensors.dst, .residual = tensors.before_activation}, kActivationOnly);
}

void Linear::backward_data(const void* diff_dst, const void* weights, void* diff_src) const {
    const auto made = plan(PassKind::backward_data, 0);
    const int threads = num_threads();
    const WorkspacePool::Lease scratch(*workspaces_, made->scratch_bytes() * threads);
    made->run({.a = diff_dst, .b = weights, .c = diff_src}, scratch.data(), threads);
}

// Scratch of one tensor in pairs of samples.
std::int64_t Linear::pairs_bytes(std::int64_t channels) const {
    if (spec_.dtype != DType::bf16) return 0;
    const ChannelBlocks blocks = linear_blocks(channels);
    return aligned((spec_.shape.N + 1) / 2 * 2 * blocks.count() * blocks.block *
                   size_of(spec_.dtype));
}

void Linear::backward_weights(const void* src, const void* diff_dst, DType to,
                              void* diff_weights) const {
    const LinearShape& shape = spec_.shape;
    const std::int64_t diff_dst_bytes = pairs_bytes(shape.K), src_bytes = pairs_bytes(shape.C);
    const auto made = plan(PassKind::backward_weights, to == DType::f32 ? 0 : kRounded);
    const int threads = num_threads();
    const std::int64_t pairs = diff_dst_bytes + src_bytes;
    const WorkspacePool::Lease scratch(*workspaces_, pairs + made->scratch_bytes() * threads);
    ContractionOperands operands{.a = diff_dst, .b = src, .c = diff_weights};
    if (spec_.dtype == DType::bf16) {
        char* const src_pairs = scratch.data() + diff_dst_bytes;
        pack_sample_pairs(linear_activations(shape.N, shape.K, spec_.dtype), spec_.layout, diff_dst,
                          scratch.data());
        pack_sample_pairs(linear_activations(shape.N, shape.C, spec_.dtype), spec_.layout, src,
                          src_pairs);
        operands.a = scratch.data();
        operands.b = src_pairs;
    }
    made->run(operands, scratch.data() + pairs, threads);
}

void Linear::backward_activation(ActivationBackward problem) const {
    problem.tensor = linear_activations(spec_.shape.N, spec_.shape.K, spec_.dtype);
    problem.layout = spec_.layout;
    problem.activation = spec_.activation;
    const bool sums = problem.diff_bias != nullptr && spec_.shape.K > 0;
    const std::int64_t bytes =
        !sums ? 0 : relu_backward_scratch_bytes(problem.tensor, problem.layout);
    const WorkspacePool::Lease scratch(*workspaces_, bytes);
    activation_backward(problem, scratch.data());
}

std::int64_t Linear::scratch_bytes(PassKind pass) const {
    if (pass == PassKind::backward_weights) {
        return pairs_bytes(spec_.shape.K) + pairs_bytes(spec_.shape.C);
    }
    return plan(pass, kComplete)->scratch_bytes() * num_threads();
}

Schedule Linear::schedule(PassKind pass) const {
    const std::lock_guard lock(mutex_);
    return schedules_.at(pass);
}

void Linear::set_schedule(PassKind pass, const Schedule& schedule) {
    const auto made = std::make_shared<ContractionPlan>(contraction(pass, kComplete), schedule);
    const std::lock_guard lock(mutex_);
    std::erase_if(plans_, [&](const auto& entry) { return entry.first.first == pass; });
    schedules_[pass] = schedule;
    plans_[{pass, kComplete}] = made;
}

std::vector<Loop> Linear::loops(PassKind pass) const {
    std::vector<Loop> loops;
    for (const ContractionLoop& loop : contraction(pass, kComplete).loops) {
        loops.push_back({loop.letter, loop.extent});
    }
    return loops;
}

std::vector<Schedule> Linear::candidates(PassKind pass, int count) const {
    return ranked_schedules(contraction(pass, kComplete), this_machine(), count);
}

std::string Linear::describe() const {
    const ChannelBlocks in = depth_blocks(spec_.shape.C, spec_.dtype);
    const ChannelBlocks out = linear_blocks(spec_.shape.K);
    std::string text = "blocks: C " + std::to_string(in.count()) + " x " +
                       std::to_string(in.block) + ", K " + std::to_string(out.count()) + " x " +
                       std::to_string(out.block) + "\n";
    for (const PassKind pass : passes()) {
        text += std::string(name_of(pass)) + ": schedule '" + to_string(schedule(pass)) + "'\n";
        for (const std::string& name : plan(pass, kComplete)->kernel_names()) {
            text += "  " + name + "\n";
        }
    }
    return text;
}

}  // namespace dlprim
