#include "primitives/rnn/rnn_panels.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "primitives/tensor/pack.h"
#include "primitives/tensor/parallel.h"
#include "primitives/tensor/transposition.h"

namespace dlprim {
namespace {

// Rows of a task.
constexpr std::int64_t kTaskRows = 256;

std::size_t size(std::int64_t bytes) { return static_cast<std::size_t>(bytes); }

char* at(void* base, std::int64_t bytes) { return static_cast<char*>(base) + bytes; }
const char* at(const void* base, std::int64_t bytes) {
    return static_cast<const char*>(base) + bytes;
}

// body(panel, row) for all rows of all panels.
template <class Body>
void for_rows(const PanelRows& tensor, const Body& body) {
    const Blocks blocks{tensor.rows, kTaskRows};
    parallel_for(blocks.count() * tensor.panels.count(), [&](std::int64_t task) {
        const Range rows = blocks.at(task % blocks.count());
        for (std::int64_t row = rows.begin; row < rows.end; ++row) {
            body(task / blocks.count(), row);
        }
    });
}

char* panel_row(const PanelRows& tensor, std::int64_t panel, std::int64_t row) {
    return at(tensor.first,
              (panel * tensor.panel_rows + row) * tensor.panels.width * size_of(tensor.dtype));
}

char* plain_row(const PanelRows& tensor, std::int64_t panel, std::int64_t row) {
    return at(tensor.plain, (row * tensor.panels.channels + tensor.panels.at(panel).begin) *
                                size_of(tensor.dtype));
}

// A matrix of weights to pack: `panels` cuts the columns of B, of which gate `gate` stands at
// place `place` of each panel.
struct GateMatrix {
    DType dtype;
    Panels panels;       // of the columns
    Panels rows;         // of B
    std::int64_t gates;  // in a panel
    std::int64_t place;  // of this one
    bool transposed;     // stored (columns, rows)
    const void* src;
    void* dst;
};

// All panels but a narrower last one, or that one.
void pack_panels(const GateMatrix& matrix, Range panels, std::int64_t columns) {
    if (panels.size() == 0) return;
    const std::int64_t element = size_of(matrix.dtype);
    const std::int64_t ld = matrix.transposed ? matrix.rows.channels : matrix.panels.channels;
    const std::int64_t first = panels.begin * matrix.panels.width;
    const std::int64_t apart = matrix.panels.width * (matrix.transposed ? ld : 1) * element;
    const std::int64_t gate = matrix.rows.padded() * matrix.panels.width * element;
    pack_b({.from = matrix.dtype,
            .to = matrix.dtype,
            .k = matrix.rows.channels,
            .n = columns,
            .transposed = matrix.transposed,
            .src = at(matrix.src, first * (matrix.transposed ? ld : 1) * element),
            .ld_src = ld,
            .dst = at(matrix.dst, (panels.begin * matrix.gates + matrix.place) * gate),
            .ld_dst = matrix.panels.width,
            .batch = panels.size(),
            .stride_src = apart,
            .stride_dst = matrix.gates * gate});
}

void pack_gate(const GateMatrix& matrix) {
    const std::int64_t whole = matrix.panels.channels / matrix.panels.width;
    pack_panels(matrix, {0, whole}, matrix.panels.width);
    const std::int64_t rest = matrix.panels.channels - whole * matrix.panels.width;
    if (rest > 0) pack_panels(matrix, {whole, whole + 1}, rest);
}

// Where packing leaves something unwritten.
void clear_ragged(const RnnShape& shape, void* packed, const Panels& columns, std::int64_t rows,
                  std::int64_t padded_rows) {
    if (columns.padded() == columns.channels && padded_rows == rows) return;
    std::memset(packed, 0,
                size(shape.gates() * padded_rows * columns.padded() * size_of(shape.dtype)));
}

// Packed weights of one product and their transposed form, whose gates are at `places`.
struct PackedPair {
    Panels input;
    GateSlots places;
    const void* packed;
    void* transposed;
};

void transpose_panels(const RnnShape& shape, const PackedPair& pair) {
    const Panels state = shape.state();
    const Panels& input = pair.input;
    const std::int64_t element = size_of(shape.dtype);
    const std::int64_t gates = shape.gates();
    parallel_for(input.count() * gates, [&](std::int64_t task) {
        const std::int64_t panel = task / gates;
        const std::int64_t gate = task % gates;
        const std::int64_t place = pair.places[static_cast<std::size_t>(gate)];
        for (std::int64_t k = 0; k < state.count(); ++k) {
            const std::int64_t from =
                ((k * gates + gate) * input.padded() + panel * input.width) * state.width;
            const std::int64_t to =
                ((panel * gates + place) * state.padded() + k * state.width) * input.width;
            transpose_packed(shape.dtype, {.src = at(pair.packed, from * element),
                                           .ld_src = state.width,
                                           .rows = input.width,
                                           .columns = state.width,
                                           .dst = at(pair.transposed, to * element),
                                           .ld_dst = input.width});
        }
    });
}

float value_or_zero(const float* values, std::int64_t index) {
    return values == nullptr ? 0 : values[index];
}

void pack_bias(const RnnShape& shape, const RnnWeights& plain, float* bias) {
    const std::int64_t summed = shape.cell == RnnCell::lstm ? 4 * shape.K : 2 * shape.K;
    for (std::int64_t i = 0; i < summed; ++i) {
        bias[i] = value_or_zero(plain.b_ih, i) + value_or_zero(plain.b_hh, i);
    }
    for (std::int64_t i = summed; i < shape.gates() * shape.K; ++i) {
        bias[i] = value_or_zero(plain.b_ih, i);
        bias[i + shape.K] = value_or_zero(plain.b_hh, i);
    }
}

// Weights of the product with `channels` channels, [panel of columns][gate][rows][width].
TensorForm gates_form(const RnnShape& shape, const std::string& name, std::int64_t channels,
                      bool transposed) {
    const Indices g{'g', shape.gates()}, k{'k', shape.K}, c{'c', channels};
    const Indices row = transposed ? k : c, column = transposed ? c : k;
    const Panels rows = panels_of(row.extent), columns = panels_of(column.extent);
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

}  // namespace

std::vector<TensorForm> rnn_forms(const RnnShape& shape) {
    const Indices T{'t', shape.T}, N{'n', shape.N}, C{'c', shape.C}, K{'k', shape.K};
    const Indices rows{'g', shape.gates() * shape.K};
    const DType dtype = shape.dtype;
    std::vector<TensorForm> forms = {gates_form(shape, "packed_w_ih", shape.C, false),
                                     gates_form(shape, "packed_w_hh", shape.K, false),
                                     gates_form(shape, "transposed_w_ih", shape.C, true),
                                     gates_form(shape, "transposed_w_hh", shape.K, true),
                                     plain_form("packed_bias", DType::f32, {{'g', 4}, K}),
                                     plain_form("w_ih", dtype, {rows, C}),
                                     plain_form("w_hh", dtype, {rows, K}),
                                     plain_form("diff_w_ih", DType::f32, {rows, C}),
                                     plain_form("diff_w_hh", DType::f32, {rows, K}),
                                     plain_form("gates", DType::f32, {T, N, rows})};
    for (const char* const name : {"src", "diff_src"}) {
        forms.push_back(plain_form(name, dtype, {T, N, C}));
    }
    for (const char* const name : {"dst", "diff_dst"}) {
        forms.push_back(plain_form(name, dtype, {T, N, K}));
    }
    for (const char* const name : {"cells", "hidden_n"}) {
        forms.push_back(plain_form(name, DType::f32, {T, N, K}));
    }
    for (const char* const name : {"h_0", "h_n", "diff_h_0", "diff_h_n"}) {
        forms.push_back(plain_form(name, dtype, {N, K}));
    }
    for (const char* const name : {"c_0", "c_n", "diff_c_0", "diff_c_n"}) {
        forms.push_back(plain_form(name, DType::f32, {N, K}));
    }
    for (const char* const name : {"b_ih", "b_hh", "diff_b_ih", "diff_b_hh"}) {
        forms.push_back(plain_form(name, DType::f32, {rows}));
    }
    return forms;
}

void to_panels(const PanelRows& tensor) {
    const std::int64_t element = size_of(tensor.dtype);
    for_rows(tensor, [&](std::int64_t panel, std::int64_t row) {
        const std::int64_t bytes = tensor.panels.at(panel).size() * element;
        char* const to = panel_row(tensor, panel, row);
        std::memcpy(to, plain_row(tensor, panel, row), size(bytes));
        std::memset(to + bytes, 0, size(tensor.panels.width * element - bytes));
    });
}

void from_panels(const PanelRows& tensor) {
    for_rows(tensor, [&](std::int64_t panel, std::int64_t row) {
        std::memcpy(plain_row(tensor, panel, row), panel_row(tensor, panel, row),
                    size(tensor.panels.at(panel).size() * size_of(tensor.dtype)));
    });
}

void clear_rows(const PanelRows& tensor) {
    for_rows(tensor, [&](std::int64_t panel, std::int64_t row) {
        std::memset(panel_row(tensor, panel, row), 0,
                    size(tensor.panels.width * size_of(tensor.dtype)));
    });
}

void clear_padding(const PanelRows& tensor, std::int64_t N, const std::int64_t* lengths) {
    for_rows(tensor, [&](std::int64_t panel, std::int64_t row) {
        if (row / N < lengths[row % N]) return;
        std::memset(panel_row(tensor, panel, row), 0,
                    size(tensor.panels.width * size_of(tensor.dtype)));
    });
}

void pair_rows(const PanelRows& tensor, void* pairs) {
    const std::int64_t width = tensor.panels.width;
    const std::int64_t group = elements_per_word(tensor.dtype);
    const std::int64_t groups = Blocks{tensor.rows, group}.count();
    const std::int64_t element = size_of(tensor.dtype);
    pack_b({.from = tensor.dtype,
            .to = tensor.dtype,
            .k = tensor.rows,
            .n = width,
            .src = tensor.first,
            .ld_src = width,
            .dst = pairs,
            .ld_dst = width,
            .batch = tensor.panels.count(),
            .stride_src = tensor.panel_rows * width * element,
            .stride_dst = groups * group * width * element});
}

std::int64_t packed_w_ih_elements(const RnnShape& shape) {
    return shape.gates() * shape.state().padded() * shape.src().padded();
}

std::int64_t packed_w_hh_elements(const RnnShape& shape) {
    return shape.gates() * shape.state().padded() * shape.state().padded();
}

void pack_weights(const RnnShape& shape, const RnnWeights& plain, const RnnPackedWeights& packed) {
    const Panels state = shape.state();
    const Panels src = shape.src();
    clear_ragged(shape, packed.w_ih, state, src.channels, src.padded());
    clear_ragged(shape, packed.w_hh, state, shape.K, state.padded());
    const std::int64_t element = size_of(shape.dtype);
    for (std::int64_t gate = 0; gate < shape.gates(); ++gate) {
        GateMatrix matrix{.dtype = shape.dtype,
                          .panels = state,
                          .rows = src,
                          .gates = shape.gates(),
                          .place = gate,
                          .transposed = true,
                          .src = at(plain.w_ih, gate * shape.K * shape.C * element),
                          .dst = packed.w_ih};
        pack_gate(matrix);
        matrix.rows = state;
        matrix.src = at(plain.w_hh, gate * shape.K * shape.K * element);
        matrix.dst = packed.w_hh;
        pack_gate(matrix);
    }
    pack_bias(shape, plain, packed.bias);
}

void transpose_weights(const RnnShape& shape, const RnnPackedWeights& packed) {
    const GateSlots src_places = src_slots(shape.cell);
    GateSlots places = hidden_slots(shape.cell);
    for (std::int64_t& place : places) place -= first_hidden_slot(shape.cell);
    transpose_panels(shape, {shape.src(), src_places, packed.w_ih, packed.w_ih_transposed});
    transpose_panels(shape, {shape.state(), places, packed.w_hh, packed.w_hh_transposed});
}

}  // namespace dlprim
