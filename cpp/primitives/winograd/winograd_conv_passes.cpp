#include "primitives/conv/conv_activation.h"
#include "primitives/conv/conv_pass.h"
#include "primitives/reorder/reorder.h"
#include "primitives/tensor/parallel.h"
#include "primitives/winograd/winograd_choice.h"
#include "primitives/winograd/winograd_pass.h"
#include "primitives/winograd/winograd_schedule.h"
#include "primitives/winograd/winograd_weights_pass.h"

namespace dlprim {
namespace {

template <class Pass>
typename Scheduled<Pass>::Rules rules_of(const WinogradProblem& problem) {
    return {.plan =
                [=](std::int64_t, const Schedule& schedule) {
                    return std::make_shared<const Pass>(problem, schedule);
                },
            .candidates =
                [=](int count) {
                    std::vector<Schedule> schedules;
                    for (const WinogradPlan& it : winograd_plans(problem, this_machine(), count)) {
                        schedules.push_back(it.schedule);
                    }
                    return schedules;
                },
            .loops = [problem] { return Pass::loops(problem); }};
}

// Forward, and backward-data, whose weights have the roles of the channels exchanged first.
class WinogradActivations final : public ConvPass {
public:
    WinogradActivations(const ConvSpec& spec, const WinogradProblem& problem)
        : spec_(spec),
          is_forward_(problem.pass == PassKind::forward),
          transposed_bytes_(
              is_forward_ ? 0 : aligned(transposed_weights_layout(spec.shape, spec.dtype).bytes())),
          transposition_(weights_layout(spec.problem()),
                         transposed_weights_layout(spec.shape, spec.dtype)),
          activation_(spec.problem(), spec.activation),
          nest_(rules_of<WinogradPass>(problem)),
          transformed_floats_(nest_.typical_plan()->transformed_floats()) {}

    void run(const ConvTensors& tensors) const override {
        const auto pass = nest_.typical_plan();
        const int threads = num_threads();
        const bool transforms = tensors.transformed == nullptr;
        const std::int64_t transposed = transforms ? transposed_bytes_ : 0;
        const WorkspacePool::Lease scratch(workspaces(),
                                           transposed + pass->scratch_bytes(transforms, threads));
        ConvTensors it = tensors;
        if (transforms && spec_.shape.N > 0) {
            it.weights = transposed_where_due(it.weights, scratch.data());
        }
        pass->run(it, scratch.data() + transposed, threads);
        if (is_forward_ && activates_apart(spec_.activation, it.relu_mask != nullptr)) {
            activation_.run(it.result, it.relu_mask);
        }
    }

    // With weights that are transformed in the call.
    std::int64_t scratch_bytes() const override {
        return transposed_bytes_ + nest_.typical_plan()->scratch_bytes(true, num_threads());
    }

    ScheduledNest* nest() const override { return &nest_; }

    std::int64_t transformed_floats() const override { return transformed_floats_; }

    void transform_weights(const void* weights, float* transformed) const override {
        const WorkspacePool::Lease scratch(workspaces(), transposed_bytes_);
        nest_.typical_plan()->transform_weights(transposed_where_due(weights, scratch.data()),
                                                transformed);
    }

private:
    const void* transposed_where_due(const void* weights, char* scratch) const {
        if (is_forward_) return weights;
        transposition_.run(weights, scratch);
        return scratch;
    }

    ConvSpec spec_;
    bool is_forward_;
    std::int64_t transposed_bytes_;
    Reorder transposition_;  // of weights, for backward-data
    ConvActivation activation_;
    mutable Scheduled<WinogradPass> nest_;
    std::int64_t transformed_floats_;  // whatever the schedule
};

class WinogradWeights final : public ConvPass {
public:
    WinogradWeights(const ConvSpec& spec, const WinogradProblem& problem)
        : spec_(spec), nest_(rules_of<WinogradWeightsPass>(problem)) {}

    void run(const ConvTensors& it) const override {
        const auto pass = nest_.typical_plan();
        const int threads = num_threads();
        const WorkspacePool::Lease scratch(workspaces(), pass->scratch_bytes(it.to, threads));
        pass->run(it, scratch.data(), threads);
        clear_diff_weights_padding(spec_.shape, it.to, it.result);
    }

    std::int64_t scratch_bytes() const override {
        return nest_.typical_plan()->scratch_bytes(spec_.dtype, num_threads());
    }

    ScheduledNest* nest() const override { return &nest_; }

private:
    ConvSpec spec_;
    mutable Scheduled<WinogradWeightsPass> nest_;
};

}  // namespace

std::unique_ptr<ConvPass> winograd_pass(const ConvSpec& spec, PassKind pass, int tile) {
    WinogradProblem problem = winograd_problem(spec.problem(), pass, tile);
    problem.relu = pass == PassKind::forward && spec.activation == Activation::relu;
    if (pass == PassKind::backward_weights) return std::make_unique<WinogradWeights>(spec, problem);
    return std::make_unique<WinogradActivations>(spec, problem);
}

}  // namespace dlprim
