#include <algorithm>

#include "primitives/conv/conv_contraction.h"
#include "primitives/tensor/parallel.h"

namespace dlprim {
namespace {

constexpr std::int64_t kWordBytes = 4;

// Bytes of the window weights of one filter row and block of K.
std::int64_t filter_row_bytes(const ConvProblem& problem) {
    const std::int64_t word = elements_per_word(problem.dtype);
    const std::int64_t words = (dst_blocks(problem.shape).block + word - 1) / word;
    return words * problem.shape.S * problem.shape.C * kWordBytes;
}

}  // namespace

std::int64_t window_weights_bytes(const ConvProblem& problem) {
    return dst_blocks(problem.shape).count() * problem.shape.R * filter_row_bytes(problem);
}

void make_window_weights(const ConvProblem& problem, const void* packed, void* window_weights) {
    const ConvShape& shape = problem.shape;
    const ChannelBlocks blocks = dst_blocks(shape);
    const std::int64_t element = size_of(problem.dtype);
    const std::int64_t word = elements_per_word(problem.dtype);
    const std::int64_t padded_C = (shape.C + word - 1) / word * word;
    const std::int64_t rows = shape.S * shape.C;
    parallel_for(blocks.count() * shape.R, [&](std::int64_t task) {
        const char* const from =
            static_cast<const char*>(packed) + task * shape.S * padded_C * blocks.block * element;
        char* const to = static_cast<char*>(window_weights) + task * filter_row_bytes(problem);
        for (std::int64_t row = 0; row < rows; ++row) {
            const std::int64_t c = row / shape.C * padded_C + row % shape.C;
            for (std::int64_t k = 0; k < blocks.block; ++k) {
                const std::int64_t source = (c / word * blocks.block + k) * word + c % word;
                const std::int64_t target = (k / word * rows + row) * word + k % word;
                std::copy_n(from + source * element, element, to + target * element);
            }
        }
    });
}

}  // namespace dlprim
