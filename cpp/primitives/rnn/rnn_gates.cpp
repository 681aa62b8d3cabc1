#include "primitives/rnn/rnn_gates.h"

#include "primitives/programs/activation_programs.h"

namespace dlprim {
namespace {

RowValue sigmoid(RowValue x) { return activated(Activation::sigmoid, x); }
RowValue tanh(RowValue x) { return activated(Activation::tanh, x); }

RowValue applied(const GateFunction& function, RowValue x) {
    const float alpha = function.alpha, beta = function.beta;
    switch (function.curve) {
        case GateCurve::affine: return multiply_add(x, alpha, beta);
        case GateCurve::elu: return positive(x, x, exp_less_one(smaller(0.0F, x)) * alpha);
        case GateCurve::hard_sigmoid: return between(multiply_add(x, alpha, beta), 0, 1);
        case GateCurve::leaky_relu: return positive(x, x, x * alpha);
        case GateCurve::relu: return activated(Activation::relu, x);
        case GateCurve::scaled_tanh: return tanh(x * beta) * alpha;
        case GateCurve::softplus: return soft_positive(x);
        case GateCurve::softsign: return x / (1.0F + abs(x));
        case GateCurve::thresholded_relu: return select(x <= alpha, 0.0F, x);
        case GateCurve::tanh: return tanh(x);
        default: return sigmoid(x);
    }
}

// Those of the form, or of the cell where it names none.
std::array<GateFunction, 3> functions_of(const RnnShape& shape) {
    std::array<GateFunction, 3> functions = shape.form.functions;
    for (std::size_t i = 0; i < functions.size(); ++i) {
        const bool gate = i == 0 && shape.cell != RnnCell::rnn;
        if (functions.at(i).curve != GateCurve::usual) continue;
        functions.at(i).curve = gate ? GateCurve::sigmoid : GateCurve::tanh;
    }
    return functions;
}

// Writes a program of rows with a step, or of those that rest.
class Writer {
public:
    Writer(const RnnShape& shape, bool rests)
        : dtype_(shape.dtype), form_(shape.form), functions_(functions_of(shape)), rests_(rests) {}

    const CellForm& form() const { return form_; }
    // The functions of the form: of gates, of what is new, and of the state on its way out.
    RowValue gate(RowValue sum) const { return applied(functions_[0], clipped(sum)); }
    RowValue candidate(RowValue sum) const { return applied(functions_[1], clipped(sum)); }
    RowValue outward(RowValue c) const { return applied(functions_[2], c); }

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

    // By the results of the activations, or of a plain cell's function.
    RowValue sigmoid_slope(RowValue y) { return slope_of(Activation::sigmoid, y, row_); }
    RowValue tanh_slope(RowValue y) { return slope_of(Activation::tanh, y, row_); }
    RowValue plain_slope(RowValue y) {
        const bool is_relu = functions_[0].curve == GateCurve::relu;
        return slope_of(is_relu ? Activation::relu : Activation::tanh, y, row_);
    }

    RowSpec spec() const { return row_.spec(); }

private:
    RowValue clipped(RowValue sum) const {
        return form_.clip > 0 ? between(sum, -form_.clip, form_.clip) : sum;
    }

    DType dtype_;
    CellForm form_;
    std::array<GateFunction, 3> functions_;
    bool rests_;
    RowBuilder row_;
};

void lstm_forward(Writer& it, bool training) {
    it.fetch(4);
    RowValue sum_i = it.floats(), sum_f = it.floats(), sum_g = it.floats(), sum_o = it.floats();
    RowValue look_i = 0, look_f = 0, look_o = 0;
    if (it.form().peepholes) look_i = it.column(), look_f = it.column(), look_o = it.column();
    const RowValue last_c = it.floats(), last_h = it.elements();
    if (it.form().peepholes) {
        sum_i = multiply_add(look_i, last_c, sum_i);
        sum_f = multiply_add(look_f, last_c, sum_f);
    }
    const RowValue i = it.gate(sum_i), g = it.candidate(sum_g);
    const RowValue f = it.form().input_forget ? 1.0F - i : it.gate(sum_f);
    const RowValue c = multiply_add(f, last_c, i * g);
    if (it.form().peepholes) sum_o = multiply_add(look_o, c, sum_o);
    const RowValue o = it.gate(sum_o), h = o * it.outward(c);
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

// h of a GRU from the gate z and the candidate n.
void store_state(Writer& it, RowValue z, RowValue n, RowValue last_h, RowValue last_hidden) {
    const RowValue h = multiply_add(z, last_h, multiply_add(-z, n, n));
    it.store(h, last_h);
    it.store_elements(h, last_hidden);
    it.store_elements(h, 0);
}

void gru_forward(Writer& it, bool training) {
    it.fetch(4);
    const RowValue sum_r = it.floats(), sum_z = it.floats(), sum_n = it.floats();
    const RowValue product_n = it.floats(), bias = it.column();
    const RowValue last_h = it.floats(), last_hidden = it.elements();
    const RowValue hidden_n = product_n + bias;
    const RowValue r = it.gate(sum_r), n = it.candidate(multiply_add(r, hidden_n, sum_n));
    const RowValue z = it.gate(sum_z);
    store_state(it, z, n, last_h, last_hidden);
    if (!training) return;
    for (const RowValue gate : {r, z, n}) it.store(gate, 0);
    it.store(hidden_n, 0);
}

// In front of the product of n; it has no rows that rest.
void gru_reset(Writer& it) {
    const RowValue sum_r = it.floats(), last_h = it.floats(), reset = it.gate(sum_r) * last_h;
    it.store_elements(reset, reset);
}

void gru_of_reset_state(Writer& it) {
    it.fetch(2);
    const RowValue sum_z = it.floats(), sum_n = it.floats();
    const RowValue last_h = it.floats(), last_hidden = it.elements();
    const RowValue n = it.candidate(sum_n), z = it.gate(sum_z);
    store_state(it, z, n, last_h, last_hidden);
}

void plain_forward(Writer& it, bool training) {
    it.fetch(1);
    const RowValue sum = it.floats(), last_hidden = it.elements(), h = it.gate(sum);
    it.store_elements(h, last_hidden);
    it.store_elements(h, 0);
    if (training) it.store(h, 0);
}

void plain_backward(Writer& it) {
    it.fetch(1);
    const RowValue product = it.floats(), past = it.floats(), diff_dst = it.elements();
    const RowValue h = it.floats(), dh = diff_dst + past + product;
    it.store(0, past + product);
    it.store_deltas({dh * it.plain_slope(h)});
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

RowSpec program(const RnnShape& shape, GatePass pass, bool rests) {
    Writer it(shape, rests);
    const std::array backward = {lstm_backward, gru_backward, plain_backward};
    const std::array forward = {lstm_forward, gru_forward, plain_forward};
    const auto cell = static_cast<std::size_t>(shape.cell);
    if (pass == GatePass::backward) {
        backward.at(cell)(it);
    } else if (pass == GatePass::reset) {
        gru_reset(it);
    } else if (shape.resets_before()) {
        gru_of_reset_state(it);
    } else {
        forward.at(cell)(it, pass == GatePass::training);
    }
    return it.spec();
}

// What a program is written from.
struct GateKey {
    RnnCell cell;
    DType dtype;
    CellForm form;
    GatePass pass;
    bool rests;

    friend bool operator==(const GateKey&, const GateKey&) = default;
};

// Forms are rare: they may share a place.
struct GateHash {
    std::size_t operator()(const GateKey& key) const noexcept {
        const auto number = [](auto it) { return static_cast<std::size_t>(it); };
        return ((number(key.cell) * 16 + number(key.dtype)) * 16 + number(key.pass)) * 2 +
               number(key.rests);
    }
};

bool has(const RnnShape& shape, GatePass pass) {
    if (pass == GatePass::inference) return true;
    return pass == GatePass::reset ? shape.resets_before() : shape.has_backward();
}

}  // namespace

GatePrograms::GatePrograms(const RnnShape& shape) {
    for (std::size_t index = 0; index < kernels_.size(); ++index) {
        const auto pass = static_cast<GatePass>(index);
        if (!has(shape, pass)) continue;
        for (const bool rests : {false, true}) {
            kernels_.at(index).at(rests ? 1 : 0) =
                known_program<GateKey, GateHash>({shape.cell, shape.dtype, shape.form, pass, rests},
                                                 [&] { return program(shape, pass, rests); });
        }
    }
}

}  // namespace dlprim
