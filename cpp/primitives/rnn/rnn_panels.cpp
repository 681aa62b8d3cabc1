#include "primitives/rnn/rnn_panels.h"

#include <algorithm>
#include <string>

#include "primitives/reorder/reorder.h"

namespace dlprim {
namespace {

// Weights of the product with `channels` channels, [panel of columns][gate][rows][width].
TensorForm gates_form(const RnnShape& shape, const std::string& name, std::int64_t channels,
                      bool transposed) {
    const Indices g{'g', shape.gates()}, k{'k', shape.K}, c{'c', channels};
    const Indices row = transposed ? k : c, column = transposed ? c : k;
    const auto panels = [&](std::int64_t of) {
        return transposed ? shape.lines(of) : panels_of(of);
    };
    const Panels rows = panels(row.extent), columns = panels(column.extent);
    const std::int64_t word = elements_per_word(shape.dtype);
    TensorForm made{.name = name,
                    .plain = plain_layout(shape.dtype, {g, k, c}),
                    .plain_shape = {shape.gates() * shape.K, channels}};
    made.packed = stored_layout(shape.dtype, {g, k, c},
                                {{column.letter, columns.count()},
                                 g,
                                 {row.letter, rows.padded() / word},
                                 {column.letter, columns.width},
                                 {row.letter, word}});
    made.packed_shape = {columns.count(), shape.gates(), rows.count(), rows.width / word,
                         columns.width};
    if (word > 1) made.packed_shape.push_back(word);
    return made;
}

// Gates that are neighbours go to neighbouring places, or the last one to the first place.
void transpose_gates(const RnnShape& shape, std::int64_t channels, const GateSlots& places,
                     const void* packed, void* transposed) {
    Layout from = gates_form(shape, "", channels, false).packed;
    Layout to = gates_form(shape, "", channels, true).packed;
    LayoutDimension &source = from.dimensions.front(), &target = to.dimensions.front();
    const std::int64_t from_gate = source.levels[0].stride * size_of(shape.dtype);
    const std::int64_t to_gate = target.levels[0].stride * size_of(shape.dtype);
    std::int64_t count = 0;
    for (std::int64_t gate = 0; gate < shape.gates(); gate += count) {
        const std::int64_t place = places[static_cast<std::size_t>(gate)];
        count = 1;
        while (gate + count < shape.gates() &&
               places[static_cast<std::size_t>(gate + count)] == place + count) {
            ++count;
        }
        source.extent = source.levels[0].extent = count;
        target.extent = target.levels[0].extent = count;
        reorder(from, static_cast<const char*>(packed) + gate * from_gate, to,
                static_cast<char*>(transposed) + place * to_gate);
    }
}

float value_or_zero(const float* values, std::int64_t index) {
    return values == nullptr ? 0 : values[index];
}

void pack_bias(const RnnShape& shape, const RnnWeights& plain, float* bias) {
    const std::int64_t apart = shape.keeps_parts() ? 1 : 0, columns = shape.vectors().channels;
    std::fill_n(bias, shape.sums() * columns, 0.0F);
    for (std::int64_t i = 0; i < shape.gates() * shape.K; ++i) {
        const std::int64_t gate = i / shape.K, at = gate * columns + i % shape.K;
        bias[at] = value_or_zero(plain.b_ih, i);
        const bool last = gate + 1 == shape.gates();
        bias[at + (last ? apart * columns : 0)] += value_or_zero(plain.b_hh, i);
    }
}

}  // namespace

std::vector<TensorForm> rnn_forms(const RnnShape& shape) {
    const Indices T{'t', shape.T}, N{'n', shape.N}, C{'c', shape.C}, K{'k', shape.K};
    const Indices rows{'g', shape.gates() * shape.K};
    const DType dtype = shape.dtype;
    std::vector<TensorForm> forms = {
        gates_form(shape, "packed_w_ih", shape.C, false),
        gates_form(shape, "packed_w_hh", shape.K, false),
        gates_form(shape, "transposed_w_ih", shape.C, true),
        gates_form(shape, "transposed_w_hh", shape.K, true),
        plain_form("packed_bias", DType::f32,
                   {{'g', shape.sums()}, {'k', shape.vectors().channels}}),
        plain_form("peepholes", DType::f32, {{'g', 3}, K})};
    const auto add = [&](std::initializer_list<const char*> names, DType type,
                         const std::vector<Indices>& order) {
        for (const char* const name : names) forms.push_back(plain_form(name, type, order));
    };
    add({"w_ih"}, dtype, {rows, C});
    add({"w_hh"}, dtype, {rows, K});
    add({"diff_w_ih"}, DType::f32, {rows, C});
    add({"diff_w_hh"}, DType::f32, {rows, K});
    add({"gates"}, DType::f32, {T, N, rows});
    add({"src", "diff_src"}, dtype, {T, N, C});
    add({"dst", "diff_dst"}, dtype, {T, N, K});
    add({"cells", "hidden_n"}, DType::f32, {T, N, K});
    add({"h_0", "h_n", "diff_h_0", "diff_h_n"}, dtype, {N, K});
    add({"c_0", "c_n", "diff_c_0", "diff_c_n"}, DType::f32, {N, K});
    add({"b_ih", "b_hh", "diff_b_ih", "diff_b_hh"}, DType::f32, {rows});
    return forms;
}

Layout panel_layout(const Panels& of, DType dtype, Indices rows, std::int64_t panel_rows,
                    char channels, std::int64_t word) {
    std::vector<Indices> order = {{channels, of.count()},
                                  {rows.letter, rounded_up(rows.extent, word) / word},
                                  {channels, of.width}};
    if (word > 1) order.push_back({rows.letter, word});
    Layout made = stored_layout(dtype, {rows, {channels, of.channels}}, order);
    made.dimensions.back().levels.front().stride = panel_rows * of.width;
    return made;
}

void pack_weights(const RnnShape& shape, const RnnWeights& plain, const RnnPackedWeights& packed) {
    const TensorForm w_ih = gates_form(shape, "", shape.C, false);
    const TensorForm w_hh = gates_form(shape, "", shape.K, false);
    reorder(w_ih.plain, plain.w_ih, w_ih.packed, packed.w_ih);
    reorder(w_hh.plain, plain.w_hh, w_hh.packed, packed.w_hh);
    pack_bias(shape, plain, packed.bias);
}

void transpose_weights(const RnnShape& shape, const RnnPackedWeights& packed) {
    require_backward(shape);
    const GateSlots src_places = src_slots(shape.cell);
    GateSlots places = hidden_slots(shape.cell);
    for (std::int64_t& place : places) place -= first_hidden_slot(shape.cell);
    transpose_gates(shape, shape.C, src_places, packed.w_ih, packed.w_ih_transposed);
    transpose_gates(shape, shape.K, places, packed.w_hh, packed.w_hh_transposed);
}

}  // namespace dlprim
