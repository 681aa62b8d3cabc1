// Compiled once per target, as per_isa.h describes.
#include "primitives/linear/narrow_product.h"

#include <algorithm>
#include <bit>
#include <cstdint>

#include "primitives/tensor/parallel.h"
#include "primitives/tensor/partition.h"
#include "primitives/tensor/per_isa.h"

#define HWY_TARGET_INCLUDE "primitives/linear/narrow_product.cpp"
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "primitives/tensor/channel_vector-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace dlprim {
namespace HWY_NAMESPACE {
namespace {

// Samples of a task: their sums are held on the stack.
constexpr std::int64_t kTaskSamples = 64;
// Of these, the ones that share what is loaded of the weights, each a chain of additions of its
// own.
constexpr std::int64_t kTogether = 4;

// The channels of one block, of samples one behind the other.
template <class Element>
struct Block {
    std::int64_t channels;
    const Element* src;
    std::int64_t ld_src;   // elements from sample to sample
    const float* weights;  // one for each channel
};

// Adds to the sums of kSamples samples from `first` on.
template <std::int64_t kSamples, class Element>
HWY_INLINE void add_products(const Block<Element>& it, std::int64_t first, float* sums) {
    using Channels = ChannelVector<Element>;
    Channels products[kSamples];
    for (Channels& each : products) each = Channels::zero();
    const Element* const src = it.src + first * it.ld_src;
    const auto step = [&](std::int64_t i, auto part) {
        const auto weights = Channels::load_floats(it.weights + i, part);
        for (std::int64_t sample = 0; sample < kSamples; ++sample) {
            products[sample].multiply_add(Channels::load(src + sample * it.ld_src + i, part),
                                          weights);
        }
    };
    std::int64_t i = 0;
    for (; i + Channels::kChannels <= it.channels; i += Channels::kChannels) step(i, All());
    if (i < it.channels) step(i, First{it.channels - i});
    for (std::int64_t sample = 0; sample < kSamples; ++sample) {
        sums[first + sample] += products[sample].total();
    }
}

float widened(float value) { return value; }
float widened(std::uint16_t value) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(value) << 16);
}

void round_to(float value, float* dst) { *dst = value; }
void round_to(float value, std::uint16_t* dst) { *dst = rounded_to_half(value); }

template <class Element>
void multiply(const LinearProblem& problem, const NarrowProduct& operands, const float* weights,
              Range samples) {
    const std::int64_t N = problem.shape.N;
    const ChannelBlocks in = linear_blocks(problem.shape.C), out = linear_blocks(problem.shape.K);
    const SampleStrides from = sample_strides(problem.layout, N, in);
    const SampleStrides to = sample_strides(problem.layout, N, out);
    float sums[kTaskSamples];
    std::fill_n(sums, samples.size(), operands.bias == nullptr ? 0.0F : *operands.bias);
    for (std::int64_t index = 0; index < in.count(); ++index) {
        const Block<Element> block{std::min(in.block, in.channels - index * in.block),
                                   static_cast<const Element*>(operands.src) +
                                       samples.begin * from.sample + index * from.block,
                                   from.sample, weights + index * in.block};
        std::int64_t sample = 0;
        for (; sample + kTogether <= samples.size(); sample += kTogether) {
            add_products<kTogether>(block, sample, sums);
        }
        for (; sample < samples.size(); ++sample) add_products<1>(block, sample, sums);
    }
    Element* const dst = static_cast<Element*>(operands.dst) + samples.begin * to.sample;
    for (std::int64_t i = 0; i < samples.size(); ++i) round_to(sums[i], dst + i * to.sample);
}

// Of the two columns that one channel is stored as (linear_layout.h), the first.
template <class Element>
void widen_weights(const LinearProblem& problem, const Element* packed, float* weights) {
    constexpr std::int64_t group = sizeof(float) / sizeof(Element);  // along the sum, side by side
    const std::int64_t apart = linear_blocks(problem.shape.K).block * group;
    const std::int64_t channels = narrow_scratch_floats(problem);
    for (std::int64_t c = 0; c < channels; ++c) {
        weights[c] = widened(packed[c / group * apart + c % group]);
    }
}

template <class Element>
void run(const LinearProblem& problem, const NarrowProduct& operands, float* weights) {
    widen_weights(problem, static_cast<const Element*>(operands.weights), weights);
    const Blocks tasks{problem.shape.N, kTaskSamples};
    parallel_for(tasks.count(), [&](std::int64_t task) {
        multiply<Element>(problem, operands, weights, tasks.at(task));
    });
}

auto product_of(DType dtype) { return dtype == DType::f32 ? run<float> : run<std::uint16_t>; }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dlprim
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dlprim {

bool is_narrow(const LinearProblem& problem) {
    return problem.shape.K == 1 && !is_int8(problem.dtype);
}

std::int64_t narrow_scratch_floats(const LinearProblem& problem) {
    const ChannelBlocks in = linear_blocks(problem.shape.C);
    return in.count() * in.block;
}

void narrow_product(const LinearProblem& problem, const NarrowProduct& operands, float* scratch) {
    DLPRIM_FOR_ISA(usable_isa(), product_of)(problem.dtype)(problem, operands, scratch);
}

}  // namespace dlprim
#endif
