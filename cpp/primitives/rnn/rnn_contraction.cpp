// What the products of a recurrent layer are, as descriptions for the one driver (contraction.h).
#include <algorithm>

#include "primitives/nest/contraction_builder.h"
#include "primitives/rnn/rnn_panels.h"
#include "primitives/rnn/rnn_pass.h"

namespace dlprim {
namespace {

// Rows that one call of a gradient of the weights sums: A and B of a call stay in the L2 cache.
constexpr std::int64_t kSummedRows = 512;

// All channels of panels as what is summed: their padding is zero.
Panels whole(const Panels& panels, std::int64_t times = 1) {
    return {times * panels.padded(), panels.width};
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

// sums(n,k,g) of `rows` rows: contiguous wherever a block begins, and padding of the last panel is
// not written.
Layout gate_sums(const RnnShape& shape, std::int64_t rows) {
    const Panels state = shape.state();
    return stored_layout(
        DType::f32, {{'n', rows}, {'k', shape.K}, {'g', shape.gates()}},
        {{'k', state.count()}, {'g', kSlots}, {'n', sum_rows(shape)}, {'k', state.width}});
}

Contraction projection(const RnnShape& shape, std::int64_t rows) {
    const Panels src = whole(shape.src());
    Contraction made = contraction_from(
        parse_statement("sums(n,k,g) +=! src(n,c) * w_ih(k,c,g)"),
        {.c = gate_sums(shape, rows),
         .a = panel_layout(src, shape.dtype, {'n', rows}, shape.rows()),
         .b = weights(shape.dtype, shape.state(), shape.gates(), src)},
        {.loops = "nkgc", .rows = "n", .columns = "k", .depth = "c", .bias = "gk"});
    made.epilogue = {.bias = true};
    return made;
}

Contraction recurrence(const RnnShape& shape) {
    const Panels state = whole(shape.state());
    return contraction_from(parse_statement("sums(n,k,g) += hidden(n,c) * w_hh(k,c,g)"),
                            {.c = gate_sums(shape, shape.N),
                             .a = panel_layout(state, shape.dtype, {'n', shape.N}, shape.N),
                             .b = weights(shape.dtype, shape.state(), shape.gates(), state)},
                            {.loops = "nkgc", .rows = "n", .columns = "k", .depth = "c"});
}

// Slots and panels are one long sum.
Contraction diff_recurrence(const RnnShape& shape) {
    const Panels state = whole(shape.state()), deltas = whole(state, shape.gates());
    Contraction made =
        contraction_from(parse_statement("tile(n,k) +=! deltas(n,s) * w_hh(k,s,0)"),
                         {.c = panel_layout(state, DType::f32, {'n', shape.N}, shape.N, 'k'),
                          .a = panel_layout(deltas, shape.dtype, {'n', shape.N}, shape.rows(), 's'),
                          .b = weights(shape.dtype, state, 1, deltas)},
                         {.loops = "nks", .rows = "n", .columns = "k", .depth = "s"});
    made.loops[0].c = made.loops[1].c = 0;  // one tile, that of the block at hand
    return made;
}

Contraction diff_src(const RnnShape& shape) {
    const Panels deltas = whole(shape.state(), shape.gates());
    const std::int64_t rows = shape.rows();
    return contraction_from(parse_statement("diff_src(n,c) +=! deltas(n,s) * w_ih(c,s,0)"),
                            {.c = plain_layout(shape.dtype, {{'n', rows}, {'c', shape.C}}),
                             .a = panel_layout(deltas, shape.dtype, {'n', rows}, rows, 's'),
                             .b = weights(shape.dtype, shape.src(), 1, deltas)},
                            {.loops = "ncs", .rows = "n", .columns = "c", .depth = "s"});
}

// Of one gate; `input` is what the weights are multiplied with, in panels of `input_rows` rows.
Contraction diff_weights(const RnnShape& shape, const Panels& input, std::int64_t input_rows) {
    const std::int64_t rows = summed_rows(shape), word = elements_per_word(shape.dtype);
    return contraction_from(
        parse_statement("diff_weights(k,c) +=! deltas(r,k) * input(r,c)"),
        {.c = plain_layout(DType::f32, {{'k', shape.K}, {'c', input.channels}}),
         .a = panel_layout(shape.state(), shape.dtype, {'r', rows}, rows, 'k', word),
         .b = panel_layout(input, shape.dtype, {'r', rows}, input_rows, 'c', word)},
        {.loops = "kcr",
         .rows = "k",
         .columns = "c",
         .depth = "r",
         .depth_unit = std::clamp<std::int64_t>(rows, 1, kSummedRows),
         .transposed_a = true});
}

}  // namespace

Contraction rnn_contraction(const RnnShape& shape, RnnPass pass, std::int64_t rows) {
    switch (pass) {
        case RnnPass::projection: return projection(shape, rows);
        case RnnPass::recurrence: return recurrence(shape);
        case RnnPass::diff_recurrence: return diff_recurrence(shape);
        case RnnPass::diff_src: return diff_src(shape);
        case RnnPass::diff_w_ih: return diff_weights(shape, shape.src(), summed_rows(shape));
        default: {
            const std::int64_t before = shape.dtype == DType::f32 ? shape.N : 0;
            return diff_weights(shape, shape.state(), summed_rows(shape) + before);
        }
    }
}

std::int64_t summed_rows(const RnnShape& shape) {
    const std::int64_t group = elements_per_word(shape.dtype);
    return Blocks{shape.rows(), group}.count() * group;
}

}  // namespace dlprim
