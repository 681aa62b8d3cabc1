#include "primitives/conv/conv_activation.h"

#include "primitives/tensor/parallel.h"

namespace dlprim {
namespace {

// Of activation_contraction().
constexpr std::size_t kImages = 1;

ContractionRules activation_rules(const ConvProblem& problem, Activation activation) {
    return {.contraction =
                [=](std::int64_t variant) {
                    return activation_contraction(
                        problem, {.activation = activation, .relu_mask = variant != 0});
                },
            .candidates = [](const Contraction&,
                             int) { return std::vector<Schedule>{parse_schedule("G N K P")}; }};
}

std::int64_t mask_image_of(const ConvProblem& problem) {
    const Contraction activation = activation_contraction(problem, {});
    return activation.mask_offset(activation.loops[kImages].c);
}

}  // namespace

ConvActivation::ConvActivation(const ConvProblem& problem, Activation activation)
    : mask_image_(mask_image_of(problem)), plans_(activation_rules(problem, activation)) {}

void ConvActivation::run(void* dst, std::uint8_t* relu_mask) const {
    plans_.plan(relu_mask != nullptr ? 1 : 0)
        ->run({.c = dst, .relu_mask = relu_mask, .accumulate = true}, nullptr, num_threads());
}

}  // namespace dlprim
