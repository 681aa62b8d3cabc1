#include "primitives/conv/conv_contraction.h"
#include "primitives/conv/conv_pass.h"
#include "primitives/tensor/parallel.h"
#include "primitives/tensor/reorder.h"

namespace dlprim {
namespace {

// Whether the zeros between strided pixels are written beside them: the plan for that needs results
// on cache lines.
enum Cells : std::int64_t { kAnyResult, kOnLines };

// As the pass multiplies them.
Layout other_weights_layout(const ConvProblem& problem) {
    return prefers_windows(problem) ? window_weights_layout(problem)
                                    : transposed_weights_layout(problem.shape, problem.dtype);
}

class DirectData final : public ConvPass {
public:
    explicit DirectData(const ConvSpec& spec)
        : problem_(spec.problem()),
          on_lines_(has_cells(problem_) ? kOnLines : kAnyResult),
          weights_bytes_(aligned(other_weights_layout(problem_).bytes())),
          to_other_form_(weights_layout(spec.shape, spec.dtype), other_weights_layout(problem_)),
          nest_({.contraction = [this](std::int64_t cells) { return contraction(cells); },
                 .typical = on_lines_}) {}

    void run(const ConvTensors& it) const override {
        const bool is_on_line = reinterpret_cast<std::intptr_t>(it.result) % kCacheLineBytes == 0;
        const auto plan = nest_.plan(is_on_line ? on_lines_ : kAnyResult);
        const int threads = num_threads();
        const WorkspacePool::Lease scratch(workspaces(),
                                           weights_bytes_ + plan->scratch_bytes() * threads);
        if (problem_.shape.N > 0) to_other_form_.run(it.weights, scratch.data());
        plan->run({.a = it.diff_dst, .b = scratch.data(), .c = it.result},
                  scratch.data() + weights_bytes_, threads);
    }

    std::int64_t scratch_bytes() const override {
        return weights_bytes_ + nest_.plan(kAnyResult)->scratch_bytes() * num_threads();
    }

    ScheduledNest* nest() const override { return &nest_; }

private:
    Contraction contraction(std::int64_t cells) const {
        if (prefers_windows(problem_)) return window_data_contraction(problem_);
        return cells == kOnLines ? cell_data_contraction(problem_)
                                 : backward_data_contraction(problem_);
    }

    ConvProblem problem_;
    Cells on_lines_;
    std::int64_t weights_bytes_;  // of their other form, in scratch
    Reorder to_other_form_;
    mutable ScheduledPass nest_;
};

}  // namespace

std::unique_ptr<ConvPass> direct_data_pass(const ConvSpec& spec) {
    return std::make_unique<DirectData>(spec);
}

}  // namespace dlprim
