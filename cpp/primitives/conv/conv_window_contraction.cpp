#include <algorithm>
#include <utility>

#include "primitives/conv/conv_contraction.h"
#include "primitives/tensor/pack.h"
#include "primitives/tensor/parallel.h"

namespace dlprim {
namespace {

// Up to this many channels, windows use vectors better than single pixels do.
constexpr std::int64_t kFewChannels = 8;
constexpr std::int64_t kWordBytes = 4;

std::int64_t padded_block(const ConvProblem& problem) {
    const std::int64_t word = elements_per_word(problem.dtype);
    return (dst_blocks(problem.shape).block + word - 1) / word * word;
}

// Bytes of the window weights of one filter row and block of K.
std::int64_t filter_row_bytes(const ConvProblem& problem) {
    return padded_block(problem) * problem.shape.S * problem.shape.C * size_of(problem.dtype);
}

// The terms of a row of diff_src that filter rows `row_taps` reach.
std::vector<Term> terms_of(const ConvProblem& problem, const std::vector<Tap>& row_taps) {
    const ConvShape& shape = problem.shape;
    const std::int64_t element = size_of(problem.dtype);
    const ActivationStrides a =
        activation_strides(problem.layout, dst_blocks(shape), shape.P(), shape.Q());
    std::vector<Term> terms{{.m = shape.W, .n = shape.C, .k = 1, .first = true}};
    terms.front().last = row_taps.empty();
    if (row_taps.empty()) return terms;
    const Axis pixels =
        forward_axis(shape.W, shape.Q(), {shape.S, shape.stride_w, shape.pad_left, 1});
    for (const Piece& piece : cover(pixels, pixels.phases.front(), Cover::disjoint)) {
        const auto taps = static_cast<std::int64_t>(piece.taps.size());
        const std::int64_t turns = (taps + shape.stride_w - 1) / shape.stride_w;
        for (std::int64_t turn = 0; turn < std::min(turns, piece.outputs.size()); ++turn) {
            const std::int64_t q = piece.outputs.begin + turn;
            const Tap& first = piece.taps.front();
            Term term{.m = (piece.outputs.end - q + turns - 1) / turns,
                      .n = taps * shape.C,
                      .lda = turns * a.pixel,
                      .c_row = q * shape.stride_w + first.offset,
                      .c_step = turns * shape.stride_w};
            for (const Tap& row : row_taps) {
                term.entries_a.push_back((row.offset * a.row + q * a.pixel) * element);
                term.entries_b.push_back(row.index * filter_row_bytes(problem) +
                                         first.index * shape.C * kWordBytes);
            }
            terms.push_back(term);
        }
    }
    terms.back().last = true;
    return terms;
}

// The frame without selections and classes.
Contraction frame(const ConvProblem& problem) {
    const ConvShape& shape = problem.shape;
    const std::int64_t element = size_of(problem.dtype);
    const ChannelBlocks in = dst_blocks(shape);
    const ChannelBlocks out = src_blocks(shape);
    const ActivationStrides a = activation_strides(problem.layout, in, shape.P(), shape.Q());
    const ActivationStrides c = activation_strides(problem.layout, out, shape.H, shape.W);
    Contraction made;
    made.loops = {
        {.letter = 'n', .extent = shape.N, .a = a.image * element, .c = c.image * element},
        {.letter = 'c', .extent = 1},
        {.letter = 'k',
         .extent = in.per_group(),
         .a = a.block * element,
         .b = shape.R * filter_row_bytes(problem),
         .sum = true},
        {.letter = 'p', .extent = shape.H, .c = c.row * element},
    };
    made.columns = {.loop = 1, .unit = shape.C, .total = shape.C};
    made.batch = {.loop = 2, .unit = in.block, .total = in.channels};
    made.selector_loop = 3;
    made.block_rows = shape.W;
    made.dtype = problem.dtype;
    made.c_type = problem.dtype;
    made.ldb = shape.S * shape.C;
    made.ldc = c.pixel;
    made.bytes_a = static_cast<double>(shape.N * a.image * element);
    made.bytes_b = static_cast<double>(window_weights_bytes(problem));
    made.bytes_c = static_cast<double>(shape.N * c.image * element);
    made.flops = shape.flops();
    return made;
}

}  // namespace

bool prefers_windows(const ConvProblem& problem) {
    const ConvShape& shape = problem.shape;
    return shape.groups == 1 && shape.C <= kFewChannels && shape.S > 1 && shape.dilation_w == 1;
}

Contraction window_data_contraction(const ConvProblem& problem) {
    const ConvShape& shape = problem.shape;
    Contraction made = frame(problem);
    const ActivationStrides a =
        activation_strides(problem.layout, dst_blocks(shape), shape.P(), shape.Q());
    const Axis rows = backward_axis(shape.P(), shape.H,
                                    {shape.R, shape.stride_h, shape.pad_top, shape.dilation_h});
    std::vector<std::vector<Tap>> known;
    made.selections.resize(static_cast<std::size_t>(shape.H));
    for (const AxisPhase& phase : rows.phases) {
        for (std::int64_t i = 0; i < phase.count; ++i) {
            const std::vector<Tap> taps = valid_taps(rows, phase, i);
            const auto same = std::find(known.begin(), known.end(), taps);
            const auto index = same - known.begin();
            if (same == known.end()) {
                known.push_back(taps);
                made.classes.push_back(terms_of(problem, taps));
            }
            made.selections[static_cast<std::size_t>(phase.out_begin + i * phase.out_step)] = {
                .block_class = static_cast<int>(index), .a = i * a.row * size_of(problem.dtype)};
        }
    }
    return made;
}

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
