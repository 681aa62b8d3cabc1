#include "primitives/layers/activation_backward.h"

#include <algorithm>

#include "primitives/layers/activation_backward_rows.h"
#include "primitives/layers/relu_backward.h"
#include "primitives/linear/linear_layout.h"
#include "primitives/tensor/parallel.h"
#include "primitives/tensor/partition.h"

namespace dlprim {
namespace {

// What a task reads: see pack.cpp.
constexpr std::int64_t kTaskBytes = 128 * 1024;

// Every sample of every block is a row.
void multiply_by_slope(const ActivationBackward& problem) {
    const ChannelBlocks& blocks = problem.tensor.blocks;
    const std::int64_t samples = problem.tensor.width, element = size_of(problem.tensor.dtype);
    const SampleStrides strides = sample_strides(problem.layout, samples, blocks);
    const auto pass =
        activation_row_function(usable_isa(), problem.tensor.dtype, problem.activation);
    const Blocks parts{samples, 1 + kTaskBytes / (blocks.block * element)};
    parallel_for(blocks.count() * parts.count(), [&](std::int64_t task) {
        const std::int64_t block = task / parts.count();
        const Range part = parts.at(task % parts.count());
        for (std::int64_t n = part.begin; n < part.end; ++n) {
            const std::int64_t offset = (block * strides.block + n * strides.sample) * element;
            pass({.count = std::min(blocks.block, blocks.channels - block * blocks.block),
                  .diff_dst = static_cast<const char*>(problem.diff_dst) + offset,
                  .saved = static_cast<const char*>(problem.saved) + offset,
                  .out = static_cast<char*>(problem.out) + offset});
        }
    });
}

}  // namespace

void activation_backward(const ActivationBackward& problem, char* scratch) {
    ReluBackward sum{.tensor = problem.tensor,
                     .layout = problem.layout,
                     .diff_dst = problem.diff_dst,
                     .out = problem.out,
                     .diff_bias = problem.diff_bias};
    if (problem.activation == Activation::relu) {
        sum.dst = problem.saved;
    } else if (problem.activation != Activation::none) {
        multiply_by_slope(problem);
        sum.diff_dst = problem.out;
    }
    if (problem.tensor.blocks.channels > 0) relu_backward(sum, scratch);
}

}  // namespace dlprim
