#include "primitives/conv/conv_activation.h"

#include "primitives/conv/conv_contraction.h"
#include "primitives/nest/contraction_builder.h"
#include "primitives/tensor/parallel.h"

namespace dlprim {
namespace {

// No product at all: only the activation of what stands in C, and its mask, over all channels. To
// be run with `accumulate`.
Contraction activation_contraction(const ConvProblem& problem, const Epilogue& epilogue) {
    ConvShape shape = problem.shape;
    const bool nhwc = problem.layout == Format::nhwc;
    const ChannelBlocks blocks = nhwc ? channel_blocks(1, shape.K) : dst_blocks(shape);
    Layout dst = ConvImages(problem, shape).dst;
    if (nhwc) {
        dst.dimensions[1] = {'g', 1, {{1, 0}}};
        dst.dimensions[2] = {'k', shape.K, {{blocks.count(), blocks.block}, {blocks.block, 1}}};
    }
    Contraction made = contraction_from(parse_product("dst(n,g,k,p,q) += 0"), {.c = dst},
                                        {.loops = "gnkp", .rows = "q", .columns = "k"});
    made.epilogue = epilogue;
    return made;
}

ContractionRules activation_rules(const ConvProblem& problem, Activation activation) {
    return {.contraction =
                [=](std::int64_t variant) {
                    return activation_contraction(
                        problem, {.activation = activation, .relu_mask = variant != 0});
                },
            .candidates = [](const Contraction&,
                             int) { return std::vector<Schedule>{parse_schedule("G N K P")}; }};
}

}  // namespace

ConvActivation::ConvActivation(const ConvProblem& problem, Activation activation)
    : plans_(activation_rules(problem, activation)) {}

void ConvActivation::run(void* dst, std::uint8_t* relu_mask) const {
    plans_.plan(relu_mask != nullptr ? 1 : 0)
        ->run({.c = dst, .relu_mask = relu_mask, .accumulate = true}, nullptr, num_threads());
}

}  // namespace dlprim
