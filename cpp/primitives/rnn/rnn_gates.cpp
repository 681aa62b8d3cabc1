#include "primitives/rnn/rnn_gates.h"

#include "primitives/programs/activation_programs.h"

namespace dlprim {
namespace {

RowValue sigmoid(RowValue x) { return activated(Activation::sigmoid, x); }
RowValue tanh(RowValue x) { return activated(Activation::tanh, x); }

// Writes a program of rows with a step, or of those that rest.
class Writer {
public:
    Writer(DType dtype, bool rests) : dtype_(dtype), rests_(rests) {}

    RowValue floats() { return row_.tensor(DType::f32); }
    RowValue elements() { return row_.tensor(dtype_); }
    RowValue column() { return row_.column(); }
    // Floats that the next tile reads.
    void fetch(int operands) {
        for (int i = 0; i < operands; ++i) row_.fetch(DType::f32);
    }

    void store(RowValue of_step, RowValue at_rest) {
        row_.store(DType::f32, rests_ ? at_rest : of_step);
    }
    void store_elements(RowValue of_step, RowValue at_rest) {
        row_.store(dtype_, rests_ ? at_rest : of_step);
    }
    // The gradients of pre-activations, by slot, and of their biases.
    void store_deltas(std::initializer_list<RowValue> deltas) {
        for (const RowValue delta : deltas) store_elements(delta, 0);
        for (const RowValue delta : deltas) row_.add_to_column(rests_ ? RowValue(0) : delta);
    }

    // By the results of the activations.
    RowValue sigmoid_slope(RowValue y) { return slope_of(Activation::sigmoid, y, row_); }
    RowValue tanh_slope(RowValue y) { return slope_of(Activation::tanh, y, row_); }

    RowSpec spec() const { return row_.spec(); }

private:
    DType dtype_;
    bool rests_;
    RowBuilder row_;
};

void lstm_forward(Writer& it, bool training) {
    it.fetch(4);
    const RowValue sum_i = it.floats(), sum_f = it.floats(), sum_g = it.floats();
    const RowValue sum_o = it.floats(), last_c = it.floats(), last_h = it.elements();
    const RowValue i = sigmoid(sum_i), g = tanh(sum_g), f = sigmoid(sum_f);
    const RowValue c = multiply_add(f, last_c, i * g);
    const RowValue o = sigmoid(sum_o), h = o * tanh(c);
    it.store(c, last_c);
    it.store_elements(h, last_h);
    it.store_elements(h, 0);
    if (!training) return;
    for (const RowValue gate : {i, f, g, o}) it.store(gate, 0);
    it.store(c, last_c);
}

void lstm_backward(Writer& it) {
    it.fetch(5);
    const RowValue product = it.floats(), past = it.floats(), diff_dst = it.elements();
    const RowValue i = it.floats(), f = it.floats(), g = it.floats(), o = it.floats();
    const RowValue cells = it.floats(), last_c = it.floats(), past_cells = it.floats();
    const RowValue dh = diff_dst + past + product, c = tanh(cells);
    const RowValue dc = multiply_add(dh * o, it.tanh_slope(c), past_cells);
    const RowValue of_o = dh * c * it.sigmoid_slope(o);
    const RowValue of_i = dc * g * it.sigmoid_slope(i), of_g = dc * i * it.tanh_slope(g);
    const RowValue of_f = dc * last_c * it.sigmoid_slope(f);
    it.store(0, past + product);
    it.store(dc * f, past_cells);
    it.store_deltas({of_i, of_f, of_g, of_o});
}

void gru_forward(Writer& it, bool training) {
    it.fetch(4);
    const RowValue sum_r = it.floats(), sum_z = it.floats(), sum_n = it.floats();
    const RowValue product_n = it.floats(), bias = it.column();
    const RowValue last_h = it.floats(), last_hidden = it.elements();
    const RowValue hidden_n = product_n + bias;
    const RowValue r = sigmoid(sum_r), n = tanh(multiply_add(r, hidden_n, sum_n));
    const RowValue z = sigmoid(sum_z), h = multiply_add(z, last_h, multiply_add(-z, n, n));
    it.store(h, last_h);
    it.store_elements(h, last_hidden);
    it.store_elements(h, 0);
    if (!training) return;
    for (const RowValue gate : {r, z, n}) it.store(gate, 0);
    it.store(hidden_n, 0);
}

// Slots: n towards src, r, z, n towards the hidden state.
void gru_backward(Writer& it) {
    it.fetch(4);
    const RowValue product = it.floats(), past = it.floats(), diff_dst = it.elements();
    const RowValue r = it.floats(), z = it.floats(), n = it.floats(), hidden_n = it.floats();
    const RowValue last_h = it.elements(), dh = diff_dst + past + product;
    const RowValue of_n = dh * (1.0F - z) * it.tanh_slope(n);
    const RowValue of_z = dh * (last_h - n) * it.sigmoid_slope(z);
    const RowValue of_r = of_n * hidden_n * it.sigmoid_slope(r);
    it.store(dh * z, past + product);
    it.store_deltas({of_n, of_r, of_z, of_n * r});
}

RowSpec program(RnnCell cell, DType dtype, GatePass pass, bool rests) {
    Writer it(dtype, rests);
    const bool lstm = cell == RnnCell::lstm;
    if (pass == GatePass::backward) {
        (lstm ? lstm_backward : gru_backward)(it);
    } else {
        (lstm ? lstm_forward : gru_forward)(it, pass == GatePass::training);
    }
    return it.spec();
}

}  // namespace

GatePrograms::GatePrograms(RnnCell cell, DType dtype) {
    for (std::size_t pass = 0; pass < kernels_.size(); ++pass) {
        for (const bool rests : {false, true}) {
            kernels_.at(pass).at(rests ? 1 : 0) =
                row_kernel(program(cell, dtype, static_cast<GatePass>(pass), rests));
        }
    }
}

}  // namespace dlprim
