#include "primitives/rnn_contraction.h"

#include <algorithm>

namespace dlprim {
namespace {

// Rows that one call of a gradient of the weights sums: A and B of a call stay in the L2 cache.
constexpr std::int64_t kSummedRows = 512;

std::int64_t float_bytes(std::int64_t elements) { return elements * size_of(DType::f32); }

// What all of them share: one term without taps.
Contraction product_of(const RnnShape& shape, std::int64_t lda) {
    Contraction made;
    made.selections = {{}};
    made.classes = {
        {Term{.lda = lda, .entries_a = {0}, .entries_b = {0}, .first = true, .last = true}}};
    made.dtype = shape.dtype;
    return made;
}

void weigh(Contraction& made, std::int64_t m, std::int64_t n, std::int64_t k) {
    const auto rows = static_cast<double>(m);
    const auto columns = static_cast<double>(n);
    const auto depth = static_cast<double>(k);
    const auto element = static_cast<double>(size_of(made.dtype));
    made.bytes_a = rows * depth * element;
    made.bytes_b = columns * depth * element;
    made.bytes_c = rows * columns * static_cast<double>(size_of(made.c_type));
    made.flops = 2 * rows * columns * depth;
}

}  // namespace

Contraction projection_contraction(const RnnShape& shape, std::int64_t rows) {
    const Panels src = shape.src();
    const Panels state = shape.state();
    const std::int64_t element = size_of(shape.dtype);
    const std::int64_t gates = shape.gates();
    Contraction made = product_of(shape, src.width);
    made.loops = {
        {.letter = 'k',
         .extent = state.count(),
         .b = gates * src.padded() * state.width * element,
         .c = float_bytes(state.width),
         .bias = float_bytes(state.width)},
        {.letter = 'g',
         .extent = gates,
         .b = src.padded() * state.width * element,
         .c = float_bytes(shape.K),
         .bias = float_bytes(shape.K)},
        {.letter = 'n',
         .extent = rows,
         .a = src.width * element,
         .c = float_bytes(gates * shape.K)},
        {.letter = 'c',
         .extent = src.count(),
         .a = shape.rows() * src.width * element,
         .b = src.width * state.width * element,
         .sum = true},
    };
    made.rows = {.loop = 2, .unit = 1, .total = rows};
    made.columns = {.loop = 0, .unit = state.width, .total = shape.K};
    made.batch = {.loop = 3, .unit = src.width, .total = src.padded()};
    made.ldb = state.width;
    made.ldc = gates * shape.K;
    made.epilogue = {.bias = true};
    weigh(made, rows, gates * shape.K, shape.C);
    return made;
}

Contraction recurrence_contraction(const RnnShape& shape, std::int64_t block_rows) {
    const Panels state = shape.state();
    const std::int64_t element = size_of(shape.dtype);
    const std::int64_t panel = state.padded() * state.width * element;
    Contraction made = product_of(shape, state.width);
    made.loops = {
        {.letter = 'n', .extent = shape.N, .a = state.width * element},
        {.letter = 'k', .extent = state.count(), .b = shape.gates() * panel},
        {.letter = 'g',
         .extent = shape.gates(),
         .b = panel,
         .c = float_bytes(block_rows * state.width)},
        {.letter = 'c',
         .extent = state.count(),
         .a = shape.N * state.width * element,
         .b = state.width * state.width * element,
         .sum = true},
    };
    made.rows = {.loop = 0, .unit = 1, .total = shape.N};
    made.columns = {.loop = 1, .unit = state.width, .total = state.padded()};
    made.batch = {.loop = 3, .unit = state.width, .total = state.padded()};
    made.ldb = state.width;
    made.ldc = state.width;
    weigh(made, shape.N, shape.gates() * shape.K, shape.K);
    return made;
}

Contraction diff_recurrence_contraction(const RnnShape& shape) {
    const Panels state = shape.state();
    const std::int64_t element = size_of(shape.dtype);
    const std::int64_t depth = shape.gates() * state.padded();
    Contraction made = product_of(shape, state.width);
    made.loops = {
        {.letter = 'n', .extent = shape.N, .a = state.width * element},
        {.letter = 'k', .extent = state.count(), .b = depth * state.width * element},
        {.letter = 's',
         .extent = shape.gates() * state.count(),
         .a = shape.rows() * state.width * element,
         .b = state.width * state.width * element,
         .sum = true},
    };
    made.rows = {.loop = 0, .unit = 1, .total = shape.N};
    made.columns = {.loop = 1, .unit = state.width, .total = state.padded()};
    made.batch = {.loop = 2, .unit = state.width, .total = depth};
    made.ldb = state.width;
    made.ldc = state.width;
    weigh(made, shape.N, shape.K, depth);
    return made;
}

Contraction diff_src_contraction(const RnnShape& shape) {
    const Panels src = shape.src();
    const Panels state = shape.state();
    const std::int64_t element = size_of(shape.dtype);
    const std::int64_t depth = shape.gates() * state.padded();
    Contraction made = product_of(shape, state.width);
    made.loops = {
        {.letter = 'n', .extent = shape.rows(), .a = state.width * element, .c = shape.C * element},
        {.letter = 'c',
         .extent = src.count(),
         .b = depth * src.width * element,
         .c = src.width * element},
        {.letter = 's',
         .extent = shape.gates() * state.count(),
         .a = shape.rows() * state.width * element,
         .b = state.width * src.width * element,
         .sum = true},
    };
    made.rows = {.loop = 0, .unit = 1, .total = shape.rows()};
    made.columns = {.loop = 1, .unit = src.width, .total = shape.C};
    made.batch = {.loop = 2, .unit = state.width, .total = depth};
    made.c_type = shape.dtype;
    made.ldb = src.width;
    made.ldc = shape.C;
    weigh(made, shape.rows(), shape.C, depth);
    return made;
}

Contraction diff_weights_contraction(const RnnShape& shape, const Panels& input,
                                     std::int64_t input_rows) {
    const Panels state = shape.state();
    const std::int64_t element = size_of(shape.dtype);
    const std::int64_t rows = summed_rows(shape);
    const std::int64_t unit = std::clamp<std::int64_t>(rows, 1, kSummedRows);
    Contraction made = product_of(shape, state.width);
    made.loops = {
        {.letter = 'k',
         .extent = state.count(),
         .a = rows * state.width * element,
         .c = float_bytes(state.width * input.channels)},
        {.letter = 'c',
         .extent = input.count(),
         .b = input_rows * input.width * element,
         .c = float_bytes(input.width)},
        {.letter = 'r',
         .extent = Blocks{rows, unit}.count(),
         .a = unit * state.width * element,
         .b = unit * input.width * element,
         .sum = true},
    };
    made.rows = {.loop = 0, .unit = state.width, .total = shape.K};
    made.columns = {.loop = 1, .unit = input.width, .total = input.channels};
    made.batch = {.loop = 2, .unit = unit, .total = rows};
    made.trans_a = true;
    made.ldb = input.width;
    made.ldc = input.channels;
    weigh(made, shape.K, input.channels, rows);
    return made;
}

std::int64_t summed_rows(const RnnShape& shape) {
    const std::int64_t group = elements_per_word(shape.dtype);
    return Blocks{shape.rows(), group}.count() * group;
}

}  // namespace dlprim
