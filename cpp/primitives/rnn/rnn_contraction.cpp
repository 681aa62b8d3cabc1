#include "primitives/rnn/rnn_contraction.h"

#include <algorithm>

#include "primitives/nest/contraction_builder.h"

namespace dlprim {
namespace {

// Rows that one call of a gradient of the weights sums: A and B of a call stay in the L2 cache.
constexpr std::int64_t kSummedRows = 512;

// Panels of `rows` rows. As what is summed they are whole: their padding is zero.
LayoutDimension channels(const Panels& panels, std::int64_t rows, bool whole = false) {
    return {'c',
            whole ? panels.padded() : panels.channels,
            {{panels.count(), rows * panels.width}, {panels.width, 1}}};
}

Layout panels(DType dtype, const Panels& panels, std::int64_t rows, std::int64_t panel_rows,
              bool whole = false) {
    return {dtype, {{'n', rows, {{rows, panels.width}}}, channels(panels, panel_rows, whole)}};
}

// Panels of so many channels, [panel][depth][width], neighbours along the depth side by side.
Layout weights(DType dtype, const Panels& out, std::int64_t depth, std::int64_t panel) {
    const std::int64_t word = elements_per_word(dtype);
    LayoutDimension summed = {
        'c', depth, {{depth / panel, panel * out.width}, {panel / word, word * out.width}}};
    if (word > 1) summed.levels.push_back({word, 1});
    return {dtype,
            {{'k', out.channels, {{out.count(), depth * out.width}, {out.width, word}}}, summed}};
}

Contraction gates_contraction(const RnnShape& shape, const Panels& input, std::int64_t rows,
                              std::int64_t input_rows, std::int64_t sum_rows, bool first) {
    const Panels state = shape.state();
    const std::int64_t gates = shape.gates();
    const std::int64_t slot = sum_rows * state.width;
    Layout w = weights(shape.dtype, state, input.padded(), input.width);
    w.dimensions[0].levels[0].stride *= gates;
    w.dimensions.push_back({'g', gates, {{gates, input.padded() * state.width}}});
    Contraction made = contraction_from(
        parse_statement(first ? "sums(n,k,g) +=! src(n,c) * weights(k,c,g)"
                              : "sums(n,k,g) += hidden(n,c) * weights(k,c,g)"),
        {.c = {DType::f32,
               {{'n', rows, {{rows, state.width}}},
                {'k', state.channels, {{state.count(), kSlots * slot}, {state.width, 1}}},
                {'g', gates, {{gates, slot}}}}},
         .a = panels(shape.dtype, input, rows, input_rows, true),
         .b = w},
        {.loops = "nkgc", .rows = "n", .columns = "k", .depth = "c", .bias = first ? "gk" : ""});
    made.epilogue.bias = first;
    return made;
}

}  // namespace

Contraction projection_contraction(const RnnShape& shape, std::int64_t rows,
                                   std::int64_t sum_rows) {
    return gates_contraction(shape, shape.src(), rows, shape.rows(), sum_rows, true);
}

Contraction recurrence_contraction(const RnnShape& shape, std::int64_t sum_rows) {
    return gates_contraction(shape, shape.state(), shape.N, shape.N, sum_rows, false);
}

Contraction diff_recurrence_contraction(const RnnShape& shape) {
    const Panels state = shape.state();
    const Panels slots = {shape.gates() * state.padded(), state.width};
    Panels whole = state;
    whole.channels = state.padded();
    Contraction made =
        contraction_from(parse_statement("tile(n,k) +=! deltas(n,s) * weights(k,s)"),
                         {.c = panels(DType::f32, whole, shape.N, 0),
                          .a = panels(shape.dtype, slots, shape.N, shape.rows()),
                          .b = weights(shape.dtype, whole, slots.channels, state.width)},
                         {.loops = "nks", .rows = "n", .columns = "k", .depth = "s"});
    made.loops[0].c = 0;  // one tile, that of the block at hand
    return made;
}

Contraction diff_src_contraction(const RnnShape& shape) {
    const Panels src = shape.src();
    const Panels state = shape.state();
    const Panels slots = {shape.gates() * state.padded(), state.width};
    const std::int64_t rows = shape.rows();
    return contraction_from(parse_statement("diff_src(n,c) +=! deltas(n,s) * weights(c,s)"),
                            {.c = {shape.dtype,
                                   {{'n', rows, {{rows, shape.C}}},
                                    {'c', shape.C, {{src.count(), src.width}, {src.width, 1}}}}},
                             .a = panels(shape.dtype, slots, rows, rows),
                             .b = weights(shape.dtype, src, slots.channels, state.width)},
                            {.loops = "ncs", .rows = "n", .columns = "c", .depth = "s"});
}

Contraction diff_weights_contraction(const RnnShape& shape, const Panels& input,
                                     std::int64_t input_rows) {
    const Panels state = shape.state();
    const std::int64_t rows = summed_rows(shape);
    // Rows are summed, so they are what stands side by side.
    const auto summed = [&](const Panels& of, std::int64_t panel_rows) {
        const std::int64_t word = elements_per_word(shape.dtype);
        Layout made = panels(shape.dtype, of, rows, panel_rows);
        if (word == 1) return made;
        made.dimensions[0].levels = {{rows / word, word * of.width}, {word, 1}};
        made.dimensions[1].levels[1].stride = word;
        return made;
    };
    return contraction_from(
        parse_statement("diff_weights(k,c) +=! deltas(r,k) * input(r,c)"),
        {.c = {DType::f32,
               {{'k',
                 shape.K,
                 {{state.count(), state.width * input.channels}, {state.width, input.channels}}},
                {'c', input.channels, {{input.count(), input.width}, {input.width, 1}}}}},
         .a = summed(state, rows),
         .b = summed(input, input_rows)},
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
