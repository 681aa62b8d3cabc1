#include "primitives/rnn/rnn_contraction.h"

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

// An input of the gates and the memory of their sums, in rows.
struct GateRows {
    const Panels& input;
    std::int64_t rows;        // of the product
    std::int64_t input_rows;  // of a panel of the input
    std::int64_t sum_rows;    // of a panel of sums
};

// The input times the weights of all gates.
Contraction gates_contraction(const RnnShape& shape, const GateRows& at) {
    const Panels& input = at.input;
    const Panels state = shape.state();
    const std::int64_t element = size_of(shape.dtype);
    const std::int64_t panel = input.padded() * state.width * element;
    const std::int64_t slot = float_bytes(at.sum_rows * state.width);
    Contraction made = product_of(shape, input.width);
    made.loops = {
        {.letter = 'n',
         .extent = at.rows,
         .a = input.width * element,
         .c = float_bytes(state.width)},
        {.letter = 'k', .extent = state.count(), .b = shape.gates() * panel, .c = kSlots * slot},
        {.letter = 'g', .extent = shape.gates(), .b = panel, .c = slot},
        {.letter = 'c',
         .extent = input.count(),
         .a = at.input_rows * input.width * element,
         .b = input.width * state.width * element,
         .sum = true},
    };
    made.rows = {.loop = 0, .unit = 1, .total = at.rows};
    made.columns = {.loop = 1, .unit = state.width, .total = shape.K};
    made.batch = {.loop = 3, .unit = input.width, .total = input.padded()};
    made.ldb = state.width;
    made.ldc = state.width;
    weigh(made, at.rows, shape.gates() * shape.K, input.channels);
    return made;
}

}  // namespace

Contraction projection_contraction(const RnnShape& shape, std::int64_t rows,
                                   std::int64_t sum_rows) {
    Contraction made = gates_contraction(
        shape,
        {.input = shape.src(), .rows = rows, .input_rows = shape.rows(), .sum_rows = sum_rows});
    made.loops[1].bias = float_bytes(shape.state().width);
    made.loops[2].bias = float_bytes(shape.K);
    made.epilogue = {.bias = true};
    return made;
}

Contraction recurrence_contraction(const RnnShape& shape, std::int64_t sum_rows) {
    Contraction made = gates_contraction(
        shape,
        {.input = shape.state(), .rows = shape.N, .input_rows = shape.N, .sum_rows = sum_rows});
    made.accumulates = true;
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
