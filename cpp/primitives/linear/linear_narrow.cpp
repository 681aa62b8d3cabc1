#include "primitives/linear/linear_narrow.h"

#include <algorithm>

#include "primitives/linear/narrow_product.h"
#include "primitives/tensor/buffer.h"
#include "primitives/tensor/pack_rows.h"
#include "primitives/tensor/parallel.h"

namespace dlprim {
namespace {

// Samples of a task: their sums are held on the stack.
constexpr std::int64_t kSamples = 64;

// The weights one behind the other, as float32.
void unpack_vector(const LinearProblem& problem, const void* packed, float* weights) {
    const ChannelBlocks in = linear_blocks(problem.shape.C);
    const std::int64_t group = elements_per_word(problem.dtype);
    const std::int64_t apart = linear_blocks(problem.shape.K).block * group;
    const auto widen = row_functions(usable_isa()).widen;
    for (std::int64_t c = 0; c < in.count() * in.block; ++c) {
        const std::int64_t at = c / group * apart + c % group;
        if (problem.dtype == DType::f32) {
            weights[c] = static_cast<const float*>(packed)[at];
        } else {
            widen(static_cast<const std::uint16_t*>(packed) + at, weights + c, 1);
        }
    }
}

}  // namespace

bool is_narrow(const LinearProblem& problem) {
    return problem.shape.K == 1 && !is_int8(problem.dtype);
}

void narrow_forward(const LinearProblem& problem, const NarrowForward& tensors) {
    const LinearShape& shape = problem.shape;
    const ChannelBlocks in = linear_blocks(shape.C), out = linear_blocks(shape.K);
    const std::int64_t element = size_of(problem.dtype);
    const SampleStrides from = sample_strides(problem.layout, shape.N, in);
    const SampleStrides to = sample_strides(problem.layout, shape.N, out);
    const Buffer weights(in.count() * in.block);
    unpack_vector(problem, tensors.weights, weights.data());
    const Blocks tasks{shape.N, kSamples};
    const NarrowFunction add_products = narrow_function(usable_isa(), problem.dtype);
    const auto round = row_functions(usable_isa()).round;
    parallel_for(tasks.count(), [&](std::int64_t task) {
        const Range samples = tasks.at(task);
        float sums[kSamples];
        std::fill_n(sums, samples.size(), tensors.bias == nullptr ? 0.0F : *tensors.bias);
        for (std::int64_t block = 0; block < in.count(); ++block) {
            const std::int64_t first = samples.begin * from.sample + block * from.block;
            add_products({.samples = samples.size(),
                          .channels = std::min(in.block, in.channels - block * in.block),
                          .src = static_cast<const char*>(tensors.src) + first * element,
                          .ld_src = from.sample,
                          .weights = weights.data() + block * in.block,
                          .sums = sums});
        }
        for (std::int64_t i = 0; i < samples.size(); ++i) {
            const std::int64_t at = (samples.begin + i) * to.sample;
            if (problem.dtype == DType::f32) {
                static_cast<float*>(tensors.dst)[at] = sums[i];
            } else {
                round(sums + i, static_cast<std::uint16_t*>(tensors.dst) + at, 1);
            }
        }
    });
}

}  // namespace dlprim
