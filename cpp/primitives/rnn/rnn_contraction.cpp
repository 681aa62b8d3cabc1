#include "primitives/rnn/rnn_contraction.h"

#include <algorithm>

#include "primitives/nest/contraction_builder.h"

namespace dlprim {
namespace {

// Rows that one call of a gradient of the weights sums: A and B of a call stay in the L2 cache.
constexpr std::int64_t kSummedRows = 512;

// All channels of panels as what is summed: their padding is zero.
Panels whole(const Panels& panels, std::int64_t times = 1) {
    return {times * panels.padded(), panels.width};
}

// [panel][row][width]
Layout panels(DType dtype, const Panels& of, std::int64_t rows, std::int64_t panel_rows,
              char letter) {
    return stored_layout(dtype, {{'n', rows}, {letter, of.channels}},
                         {{letter, of.count()}, {'n', panel_rows}, {letter, of.width}});
}

// Rows that are summed: in bfloat16 [panel][row pair][width][2].
Layout summed_panels(DType dtype, const Panels& of, std::int64_t rows, std::int64_t panel_rows,
                     char letter) {
    const std::int64_t word = elements_per_word(dtype);
    return stored_layout(
        dtype, {{'r', rows}, {letter, of.channels}},
        {{letter, of.count()}, {'r', panel_rows / word}, {letter, of.width}, {'r', word}});
}

// [panel of `out`][gate][channel that is summed][width], neighbours along the sum side by side.
Layout weights(DType dtype, const Panels& out, std::int64_t gates, const Panels& in) {
    const std::int64_t word = elements_per_word(dtype);
    return stored_layout(dtype, {{'k', out.channels}, {'c', in.channels}, {'g', gates}},
                         {{'k', out.count()},
                          {'g', gates},
                          {'c', in.count()},
                          {'c', in.width / word},
                          {'k', out.width},
                          {'c', word}});
}

// sums(n,k,g) of `rows` rows, in memory of `sum_rows` rows.
Layout gate_sums(const RnnShape& shape, std::int64_t rows, std::int64_t sum_rows) {
    const Panels state = shape.state();
    return stored_layout(
        DType::f32, {{'n', rows}, {'k', shape.K}, {'g', shape.gates()}},
        {{'k', state.count()}, {'g', kSlots}, {'n', sum_rows}, {'k', state.width}});
}

}  // namespace

Contraction projection_contraction(const RnnShape& shape, std::int64_t rows,
                                   std::int64_t sum_rows) {
    const Panels src = whole(shape.src());
    Contraction made = contraction_from(
        parse_statement("sums(n,k,g) +=! src(n,c) * w_ih(k,c,g)"),
        {.c = gate_sums(shape, rows, sum_rows),
         .a = panels(shape.dtype, src, rows, shape.rows(), 'c'),
         .b = weights(shape.dtype, shape.state(), shape.gates(), src)},
        {.loops = "nkgc", .rows = "n", .columns = "k", .depth = "c", .bias = "gk"});
    made.epilogue = {.bias = true};
    return made;
}

Contraction recurrence_contraction(const RnnShape& shape, std::int64_t sum_rows) {
    const Panels state = whole(shape.state());
    return contraction_from(parse_statement("sums(n,k,g) += hidden(n,c) * w_hh(k,c,g)"),
                            {.c = gate_sums(shape, shape.N, sum_rows),
                             .a = panels(shape.dtype, state, shape.N, shape.N, 'c'),
                             .b = weights(shape.dtype, shape.state(), shape.gates(), state)},
                            {.loops = "nkgc", .rows = "n", .columns = "k", .depth = "c"});
}

// Slots and panels are one long sum.
Contraction diff_recurrence_contraction(const RnnShape& shape) {
    const Panels state = whole(shape.state()), deltas = whole(state, shape.gates());
    Contraction made =
        contraction_from(parse_statement("tile(n,k) +=! deltas(n,s) * w_hh(k,s,0)"),
                         {.c = panels(DType::f32, state, shape.N, shape.N, 'k'),
                          .a = panels(shape.dtype, deltas, shape.N, shape.rows(), 's'),
                          .b = weights(shape.dtype, state, 1, deltas)},
                         {.loops = "nks", .rows = "n", .columns = "k", .depth = "s"});
    made.loops[0].c = made.loops[1].c = 0;  // one tile, that of the block at hand
    return made;
}

Contraction diff_src_contraction(const RnnShape& shape) {
    const Panels deltas = whole(shape.state(), shape.gates());
    const std::int64_t rows = shape.rows();
    return contraction_from(parse_statement("diff_src(n,c) +=! deltas(n,s) * w_ih(c,s,0)"),
                            {.c = plain_layout(shape.dtype, {{'n', rows}, {'c', shape.C}}),
                             .a = panels(shape.dtype, deltas, rows, rows, 's'),
                             .b = weights(shape.dtype, shape.src(), 1, deltas)},
                            {.loops = "ncs", .rows = "n", .columns = "c", .depth = "s"});
}

Contraction diff_weights_contraction(const RnnShape& shape, const Panels& input,
                                     std::int64_t input_rows) {
    const std::int64_t rows = summed_rows(shape);
    return contraction_from(parse_statement("diff_weights(k,c) +=! deltas(r,k) * input(r,c)"),
                            {.c = plain_layout(DType::f32, {{'k', shape.K}, {'c', input.channels}}),
                             .a = summed_panels(shape.dtype, shape.state(), rows, rows, 'k'),
                             .b = summed_panels(shape.dtype, input, rows, input_rows, 'c')},
                            {.loops = "kcr",
                             .rows = "k",
                             .columns = "c",
                             .depth = "r",
                             .depth_unit = std::clamp<std::int64_t>(rows, 1, kSummedRows),
                             .transposed_a = true});
}

std::int64_t summed_rows(const RnnShape& shape) {
    const std::int64_t group = elements_per_word(shape.dtype);
    return Blocks{shape.rows(), group}.count() * group;
}

}  // namespace dlprim
