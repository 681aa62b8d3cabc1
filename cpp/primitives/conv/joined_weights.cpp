#include "primitives/conv/joined_weights.h"

#include "primitives/tensor/parallel.h"

namespace dlprim {
namespace {

// More channels fill their pairs well enough.
constexpr std::int64_t kFewChannels = 8;

}  // namespace

bool needs_joined_weights(const ConvProblem& problem) {
    const ConvShape& shape = problem.shape;
    return problem.dtype == DType::bf16 && shape.groups == 1 && shape.C % 2 == 1 &&
           shape.C <= kFewChannels && shape.S > 1 && shape.dilation_w == 1;
}

std::int64_t joined_weights_bytes(const ConvProblem& problem) {
    const ConvShape& shape = problem.shape;
    const ChannelBlocks blocks = dst_blocks(shape);
    return blocks.count() * 2 * shape.R * joined_pairs(shape.S, shape.C) * blocks.block * 2 *
           size_of(problem.dtype);
}

Layout joined_weights_layout(const ConvProblem& problem) {
    const ConvShape& shape = problem.shape;
    const ChannelBlocks K = dst_blocks(shape);
    const Indices g{'g', 1}, r{'r', shape.R};
    constexpr char kCopy = '2';
    Layout made =
        stored_layout(problem.dtype, {g, {'k', K.channels}, {'c', shape.C}, r, {kCopy, 2}},
                      {g,
                       {'k', K.count()},
                       {'c', 1},
                       {kCopy, 2},
                       r,
                       {'c', joined_pairs(shape.S, shape.C)},
                       {'k', K.block},
                       {'c', 2}});
    const std::int64_t pair = 2 * K.block, copy = made.dimension(kCopy).levels.front().stride;
    // Tap s begins with element s * C, C being odd.
    made.dimensions.back() = {
        's', shape.S, {{(shape.S + 1) / 2, shape.C * pair}, {2, copy + shape.C / 2 * pair}}};
    return made;
}

void join_weights(const ConvProblem& problem, const void* packed, void* joined) {
    const ConvShape& shape = problem.shape;
    const ChannelBlocks blocks = dst_blocks(shape);
    const std::int64_t pairs = joined_pairs(shape.S, shape.C);
    const std::int64_t tap_pairs = (shape.C + 1) / 2;
    const auto* const from = static_cast<const std::uint16_t*>(packed);
    auto* const to = static_cast<std::uint16_t*>(joined);
    parallel_for(blocks.count() * 2 * shape.R, [&](std::int64_t task) {
        const std::int64_t r = task % shape.R;
        const std::int64_t copy = task / shape.R % 2;
        const std::int64_t block = task / shape.R / 2;
        const std::uint16_t* const filter_row =
            from + (block * shape.R + r) * shape.S * tap_pairs * blocks.block * 2;
        for (std::int64_t i = 0; i < pairs * 2; ++i) {
            const std::int64_t element = i + copy;
            const std::int64_t s = element / shape.C;
            const std::int64_t c = element % shape.C;
            const std::uint16_t* const row =
                filter_row + (s * tap_pairs + c / 2) * blocks.block * 2 + c % 2;
            std::uint16_t* const out = to + (task * pairs + i / 2) * blocks.block * 2 + i % 2;
            for (std::int64_t k = 0; k < blocks.block; ++k) {
                out[2 * k] = s < shape.S ? row[2 * k] : std::uint16_t{0};
            }
        }
    });
}

}  // namespace dlprim
