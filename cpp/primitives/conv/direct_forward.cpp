#include "primitives/conv/conv_activation.h"
#include "primitives/conv/conv_contraction.h"
#include "primitives/conv/conv_pass.h"
#include "primitives/tensor/parallel.h"

namespace dlprim {
namespace {

// What becomes of a residual: it is added at last or, where sums pass through dst and the residual
// stands there, they continue it.
enum Residual : std::int64_t { kNone, kAdded, kContinued };
constexpr std::int64_t kMasked = 3;  // added to these: the mask of relu is written

class DirectForward final : public ConvPass {
public:
    explicit DirectForward(const ConvSpec& spec)
        : spec_(spec),
          joined_bytes_(needs_joined_weights(spec.problem())
                            ? aligned(joined_weights_bytes(spec.problem()))
                            : 0),
          shares_mask_(spec.layout == Format::nhwc && spec.shape.groups > 1 &&
                       spec.shape.group_K() % 8 != 0),
          activation_(spec.problem(), spec.activation),
          nest_({.contraction = [this](std::int64_t variant) { return contraction(variant); }}) {}

    void run(const ConvTensors& it) const override {
        const bool masked = it.relu_mask != nullptr;
        Residual residual = it.residual != nullptr ? kAdded : kNone;
        auto plan = nest_.plan(variant(residual, masked));
        if (it.residual == it.result && plan->sums_pass_through_c()) {
            residual = kContinued;
            plan = nest_.plan(variant(residual, masked));
        }
        const int threads = num_threads();
        const WorkspacePool::Lease scratch(workspaces(),
                                           joined_bytes_ + plan->scratch_bytes() * threads);
        if (joined_bytes_ > 0) join_weights(spec_.problem(), it.weights, scratch.data());
        plan->run({.a = it.src,
                   .b = joined_bytes_ > 0 ? scratch.data() : it.weights,
                   .c = it.result,
                   .bias = it.bias,
                   .residual = residual == kAdded ? it.residual : nullptr,
                   .relu_mask = it.relu_mask,
                   .accumulate = residual == kContinued},
                  scratch.data() + joined_bytes_, threads);
        if (masked && shares_mask_) activation_.run(it.result, it.relu_mask);
    }

    std::int64_t scratch_bytes() const override {
        return joined_bytes_ + nest_.typical_plan()->scratch_bytes() * num_threads();
    }

    ScheduledNest* nest() const override { return &nest_; }

private:
    static std::int64_t variant(Residual residual, bool masked) {
        return residual + (masked ? kMasked : 0);
    }

    Contraction contraction(std::int64_t variant) const {
        const bool masked = variant >= kMasked;
        const std::int64_t residual = variant % kMasked;
        const bool apart = masked && shares_mask_;
        Contraction made = forward_contraction(
            spec_.problem(), {.bias = spec_.bias,
                              .residual = residual == kAdded,
                              .activation = apart ? Activation::none : spec_.activation,
                              .relu_mask = masked && !apart});
        made.accumulates = residual == kContinued;
        return made;
    }

    ConvSpec spec_;
    std::int64_t joined_bytes_;
    bool shares_mask_;  // groups have bytes of the mask in common
    ConvActivation activation_;
    mutable ScheduledPass nest_;
};

}  // namespace

std::unique_ptr<ConvPass> direct_forward_pass(const ConvSpec& spec) {
    return std::make_unique<DirectForward>(spec);
}

}  // namespace dlprim
