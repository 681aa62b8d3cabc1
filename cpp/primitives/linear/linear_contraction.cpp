#include "primitives/linear/linear_contraction.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "jit/machine.h"
#include "primitives/nest/contraction_builder.h"
#include "primitives/tensor/quantization.h"

namespace dlprim {
namespace {

// Samples per kernel call of the sum over the minibatch, about: with 64 channels of either tensor
// they stay in the L1 cache beside each other.
constexpr std::int64_t kMostSamples = 128;
constexpr std::int64_t kMostSamplesOfFewRegisters = 64;

Layout operand(const LinearProblem& problem, std::string_view name, DType dtype) {
    return linear_layout(problem.shape, problem.layout, name, dtype);
}

// Of samples that may be plain, in blocks of their channels.
Layout in_blocks(Layout samples, char letter) {
    for (LayoutDimension& dimension : samples.dimensions) {
        if (dimension.letter != letter || dimension.levels.size() > 1) continue;
        const std::int64_t step = dimension.levels.front().stride;
        const std::int64_t block = linear_blocks(dimension.extent).block;
        dimension.levels = {{Blocks{dimension.extent, block}.count(), block * step}, {block, step}};
    }
    return samples;
}

Layout result(const LinearProblem& problem, std::string_view name) {
    return operand(problem, name, problem.c_type);
}

// [blocks][ceil(N / 2)][block][2]
Layout sample_pairs(const LinearShape& shape, Indices channels) {
    const ChannelBlocks blocks = linear_blocks(channels.extent);
    const char letter = channels.letter;
    return stored_layout(
        DType::bf16, {{'n', shape.N}, channels},
        {{letter, blocks.count()}, {'n', (shape.N + 1) / 2}, {letter, blocks.block}, {'n', 2}});
}

// That one kernel call sums.
std::int64_t sample_block(std::int64_t samples, DType dtype) {
    const bool few = dtype == DType::f32 && this_machine().few_registers();
    const std::int64_t most = few ? kMostSamplesOfFewRegisters : kMostSamples;
    if (samples <= most) return std::max<std::int64_t>(samples, 1);
    for (std::int64_t block = most; block >= most * 3 / 8; block -= 2) {
        if (samples % block == 0) return block;
    }
    return most;
}

}  // namespace

Contraction linear_forward_contraction(const LinearProblem& problem, const Epilogue& epilogue) {
    Contraction made =
        contraction_from(parse_product("dst(n,k) +=! src(n,c) * weights(k,c)"),
                         {.c = result(problem, "dst"),
                          .a = operand(problem, "src", problem.dtype),
                          .b = operand(problem, "weights", weights_type(problem.dtype))},
                         {.loops = "knc", .rows = "n", .columns = "k", .depth = "c", .bias = "k"});
    made.epilogue = epilogue;
    fetch_far_weights(made);
    return made;
}

Contraction linear_data_contraction(const LinearProblem& problem) {
    return contraction_from(parse_product("diff_src(n,c) +=! diff_dst(n,k) * weights(k,c)"),
                            {.c = result(problem, "diff_src"),
                             .a = operand(problem, "diff_dst", problem.dtype),
                             .b = operand(problem, "backward_weights", problem.dtype)},
                            {.loops = "cnk", .rows = "n", .columns = "c", .depth = "k"});
}

Contraction linear_epilogue_contraction(const LinearProblem& problem, Epilogue epilogue) {
    // There are no weights whose blocks plain rows would be cut into.
    const Layout dst = in_blocks(result(problem, "dst"), 'k');
    Contraction made = contraction_from(parse_product("dst(n,k) +=! 0"), {.c = dst},
                                        {.loops = "kn", .rows = "n", .columns = "k", .bias = "k"});
    epilogue.residual = true;
    made.epilogue = epilogue;
    return made;
}

Contraction linear_weights_contraction(const LinearProblem& problem) {
    const LinearShape& shape = problem.shape;
    const bool pairs = problem.dtype == DType::bf16;
    return contraction_from(
        parse_product("diff_weights(k,c) +=! diff_dst(n,k) * src(n,c)"),
        {.c = result(problem, "diff_weights"),
         .a = pairs ? sample_pairs(shape, {'k', shape.K})
                    : operand(problem, "diff_dst", problem.dtype),
         .b = pairs ? sample_pairs(shape, {'c', shape.C}) : operand(problem, "src", problem.dtype)},
        {.loops = "ckn",
         .rows = "k",
         .columns = "c",
         .depth = "n",
         .depth_unit = sample_block(shape.N, problem.dtype),
         .transposed_a = true});
}

}  // namespace dlprim
