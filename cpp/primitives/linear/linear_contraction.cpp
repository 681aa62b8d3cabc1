#include "primitives/linear/linear_contraction.h"

#include <algorithm>

namespace dlprim {
namespace {

// Samples per kernel call of the sum over the minibatch, about: with 64 channels of either tensor
// they stay in the L1 cache beside each other.
constexpr std::int64_t kFewestSamples = 48;
constexpr std::int64_t kMostSamples = 128;

// What the passes that multiply by the weights have in common: `in` channels are summed.
struct Product {
    std::int64_t samples = 0;
    ChannelBlocks in;
    ChannelBlocks out;
    char in_letter = 'c';
    char out_letter = 'k';
};

void set_columns(Contraction& made, const ChannelBlocks& blocks) {
    made.columns = {.loop = 0, .unit = blocks.block, .total = blocks.channels};
}

Contraction product_contraction(const LinearProblem& problem, const Product& product) {
    const ChannelBlocks& in = product.in;
    const ChannelBlocks& out = product.out;
    const std::int64_t element = size_of(problem.dtype), c_element = size_of(problem.c_type);
    const SampleStrides a = sample_strides(problem.layout, product.samples, in);
    const SampleStrides c = sample_strides(problem.layout, product.samples, out);
    const std::int64_t block =
        rounded_up(in.block, elements_per_word(problem.dtype)) * out.block * element;
    const std::int64_t depths = std::max<std::int64_t>(in.count(), 1);  // an empty sum is one
    Contraction made;
    made.loops = {
        {.letter = product.out_letter,
         .extent = out.count(),
         .b = in.count() * block,
         .c = c.block * c_element,
         .bias = out.block * size_of(DType::f32)},
        {.letter = 'n',
         .extent = product.samples,
         .a = a.sample * element,
         .c = c.sample * c_element},
        {.letter = product.in_letter,
         .extent = depths,
         .a = a.block * element,
         .b = block,
         .sum = true},
    };
    set_columns(made, out);
    made.rows = {.loop = 1, .unit = 1, .total = product.samples};
    const bool one = in.count() <= 1;  // its depth need not be that of its storage
    made.batch = {.loop = 2,
                  .unit = one ? std::max<std::int64_t>(in.channels, 1) : in.block,
                  .total = std::max<std::int64_t>(in.channels, 1)};
    Term term{.lda = a.sample, .first = true, .last = true};
    if (in.channels > 0) {
        term.entries_a = {0};
        term.entries_b = {0};
    }
    made.selections = {{}};
    made.classes = {{term}};
    made.dtype = problem.dtype;
    made.c_type = problem.c_type;
    made.ldb = out.block;
    made.ldc = c.sample;
    made.bytes_a = static_cast<double>(product.samples * in.channels * element);
    made.bytes_b = static_cast<double>(out.count() * in.count() * block);
    made.bytes_c = static_cast<double>(product.samples * out.channels * c_element);
    made.flops = problem.shape.flops();
    return made;
}

}  // namespace

Contraction linear_forward_contraction(const LinearProblem& problem, const Epilogue& epilogue) {
    const LinearShape& shape = problem.shape;
    Contraction made = product_contraction(problem, {.samples = shape.N,
                                                     .in = depth_blocks(shape.C, problem.dtype),
                                                     .out = linear_blocks(shape.K)});
    made.epilogue = epilogue;
    return made;
}

Contraction linear_data_contraction(const LinearProblem& problem) {
    const LinearShape& shape = problem.shape;
    return product_contraction(problem, {.samples = shape.N,
                                         .in = linear_blocks(shape.K),
                                         .out = linear_blocks(shape.C),
                                         .in_letter = 'k',
                                         .out_letter = 'c'});
}

Contraction linear_activation_contraction(const LinearProblem& problem, Activation activation) {
    const ChannelBlocks blocks = linear_blocks(problem.shape.K);
    const SampleStrides c = sample_strides(problem.layout, problem.shape.N, blocks);
    const std::int64_t element = size_of(problem.c_type);
    Contraction made;
    made.loops = {{.letter = 'k', .extent = blocks.count(), .c = c.block * element},
                  {.letter = 'n', .extent = problem.shape.N, .c = c.sample * element}};
    set_columns(made, blocks);
    made.rows = {.loop = 1, .unit = 1, .total = problem.shape.N};
    made.selections = {{}};
    made.classes = {{{.first = true, .last = true}}};
    made.dtype = problem.c_type;
    made.c_type = problem.c_type;
    made.ldc = c.sample;
    made.epilogue = {.residual = true, .activation = activation};
    return made;
}

std::int64_t sample_block(std::int64_t samples) {
    if (samples <= kMostSamples) return std::max<std::int64_t>(samples, 1);
    for (std::int64_t block = kMostSamples; block >= kFewestSamples; block -= 2) {
        if (samples % block == 0) return block;
    }
    return kMostSamples;
}

Contraction linear_weights_contraction(const LinearProblem& problem) {
    const LinearShape& shape = problem.shape;
    const ChannelBlocks in = linear_blocks(shape.C), out = linear_blocks(shape.K);
    const bool pairs = problem.dtype == DType::bf16;
    const std::int64_t element = size_of(problem.dtype), group = elements_per_word(problem.dtype);
    const Format layout = pairs ? Format::blocked : problem.layout;
    const std::int64_t stored = rounded_up(shape.N, group);
    const SampleStrides a = sample_strides(layout, stored, out);
    const SampleStrides b = sample_strides(layout, stored, in);
    const std::int64_t depth = sample_block(shape.N);
    const std::int64_t c_block = out.block * in.block * size_of(problem.c_type);
    Contraction made;
    made.loops = {
        {.letter = 'c', .extent = in.count(), .b = b.block * element, .c = out.count() * c_block},
        {.letter = 'k', .extent = out.count(), .a = a.block * element, .c = c_block},
        {.letter = 'n',
         .extent = std::max<std::int64_t>(Blocks{shape.N, depth}.count(), 1),
         .a = depth * a.sample * element,
         .b = depth * b.sample * element,
         .sum = true},
    };
    set_columns(made, in);
    made.rows = {.loop = 1, .unit = out.block, .total = shape.K};
    made.batch = {.loop = 2, .unit = depth, .total = std::max<std::int64_t>(shape.N, 1)};
    Term term{.lda = a.sample, .first = true, .last = true};
    if (shape.N > 0) {
        term.entries_a = {0};
        term.entries_b = {0};
    }
    made.selections = {{}};
    made.classes = {{term}};
    made.dtype = problem.dtype;
    made.c_type = problem.c_type;
    made.trans_a = true;
    made.ldb = b.sample;
    made.ldc = in.block;
    made.bytes_a = static_cast<double>(shape.N * shape.K * element);
    made.bytes_b = static_cast<double>(shape.N * shape.C * element);
    made.bytes_c = static_cast<double>(in.count() * out.count() * c_block);
    made.flops = shape.flops();
    return made;
}

}  // namespace dlprim
