#include "bindings/primitives/rnn_steps.h"

#include <cstdint>
#include <string>
#include <vector>

namespace dlprim::bindings {
namespace {

// Lengths as they are now, checked: whoever owns the array may write to it during the run.
std::vector<std::int64_t> held_lengths(const RnnShape& shape, const std::int64_t* lengths) {
    if (lengths == nullptr) return {};
    std::vector<std::int64_t> held(lengths, lengths + shape.N);
    require_lengths(shape, held.data());
    return held;
}

// The values that both passes read, by the names of the forms.
struct Inputs {
    Inputs(const RnnShape& shape, const Forms& forms, StepValues& step)
        : src(step.operand("src", forms["src"])), h_0(step.optional("h_0", forms["h_0"])) {
        if (shape.cell == RnnCell::lstm) c_0 = step.optional("c_0", forms["c_0"]);
        if (step.number("lengths") < 0) return;
        const NetworkTensor& tensor = step.tensor("lengths");
        if (tensor.dtype != "int64" || tensor.shape != Shape{shape.N} || !tensor.is_dense()) {
            step.refuse("lengths is " + tensor.described() + ", expected int64 (" +
                        std::to_string(shape.N) + ",)");
        }
        lengths = step.read("lengths");
    }

    // `held` are the lengths.
    template <class Tensors>
    void put(Tensors& tensors, const Addresses& at, const std::vector<std::int64_t>& held) const {
        tensors.src = at[src];
        tensors.h_0 = at[h_0];
        tensors.c_0 = at[c_0];
        tensors.lengths = lengths < 0 ? nullptr : held.data();
    }

    int src = -1;
    int h_0 = -1;
    int c_0 = -1;
    int lengths = -1;
};

// What goes from the forward pass to the backward one.
struct Saved {
    // take(name) is the number of a value.
    template <class Take>
    Saved(RnnCell cell, const Take& take) : gates(take("gates")) {
        if (cell == RnnCell::lstm) cells = take("cells");
        if (cell == RnnCell::gru) hidden_n = take("hidden_n");
    }

    RnnSaved of(const Addresses& at) const {
        return {.gates = at[gates], .cells = at[cells], .hidden_n = at[hidden_n]};
    }

    int gates = -1;
    int cells = -1;
    int hidden_n = -1;
};

}  // namespace

void add_rnn(const Rnn& rnn, const Forms& forms, StepValues& step) {
    const RnnShape& shape = rnn.shape();
    const bool is_lstm = shape.cell == RnnCell::lstm;
    const auto result = [&](const char* name) { return step.result(name, forms[name]); };
    const Inputs inputs(shape, forms, step);
    const int w_ih = step.operand("packed_w_ih", forms["packed_w_ih"]);
    const int w_hh = step.operand("packed_w_hh", forms["packed_w_hh"]);
    const int bias = step.operand("packed_bias", forms["packed_bias"]);
    const bool looks = shape.form.peepholes;
    const int peepholes = looks ? step.operand("peepholes", forms["peepholes"]) : -1;
    const int dst = result("dst"), h_n = result("h_n"), c_n = is_lstm ? result("c_n") : -1;
    const bool is_training = step.number("gates") >= 0;
    if (is_training) require_backward(shape);
    const Saved saved(shape.cell,
                      [&](const char* name) { return is_training ? result(name) : -1; });
    step.add(
        [=, &rnn](const Addresses& at) {
            const std::vector<std::int64_t> held = held_lengths(rnn.shape(), at[inputs.lengths]);
            RnnForward tensors{.peepholes = at[peepholes],
                               .dst = at[dst],
                               .h_n = at[h_n],
                               .c_n = at[c_n],
                               .saved = saved.of(at)};
            inputs.put(tensors, at, held);
            tensors.weights.w_ih = at[w_ih];
            tensors.weights.w_hh = at[w_hh];
            tensors.weights.bias = at[bias];
            rnn.forward(tensors);
        },
        shape.flops());
}

void add_rnn_backward(const Rnn& rnn, const Forms& forms, StepValues& step) {
    const RnnShape& shape = rnn.shape();
    require_backward(shape);
    const bool is_lstm = shape.cell == RnnCell::lstm;
    const auto operand = [&](const char* name) { return step.operand(name, forms[name]); };
    const auto optional = [&](const char* name) { return step.optional(name, forms[name]); };
    const auto result = [&](const char* name) { return step.result(name, forms[name]); };
    const Inputs inputs(shape, forms, step);
    const int w_ih = operand("transposed_w_ih"), w_hh = operand("transposed_w_hh");
    const int dst = operand("dst");
    const Saved saved(shape.cell, operand);
    const int diff_dst = optional("diff_dst"), diff_h_n = optional("diff_h_n");
    const int diff_c_n = is_lstm ? optional("diff_c_n") : -1;
    const int src = result("diff_src"), h_0 = result("diff_h_0");
    const int c_0 = is_lstm ? result("diff_c_0") : -1;
    const int diff_ih = result("diff_w_ih"), diff_hh = result("diff_w_hh");
    const int bias_ih = result("diff_b_ih"), bias_hh = result("diff_b_hh");
    step.add(
        [=, &rnn](const Addresses& at) {
            const std::vector<std::int64_t> held = held_lengths(rnn.shape(), at[inputs.lengths]);
            RnnBackward tensors{.diff_dst = at[diff_dst],
                                .diff_h_n = at[diff_h_n],
                                .diff_c_n = at[diff_c_n],
                                .dst = at[dst],
                                .saved = saved.of(at),
                                .diff_src = at[src],
                                .diff_h_0 = at[h_0],
                                .diff_c_0 = at[c_0],
                                .diff_w_ih = at[diff_ih],
                                .diff_w_hh = at[diff_hh],
                                .diff_b_ih = at[bias_ih],
                                .diff_b_hh = at[bias_hh]};
            inputs.put(tensors, at, held);
            tensors.weights.w_ih_transposed = at[w_ih];
            tensors.weights.w_hh_transposed = at[w_hh];
            rnn.backward(tensors);
        },
        2 * shape.flops());
}

void add_rnn_packing(const Rnn& rnn, const Forms& forms, StepValues& step) {
    const int w_ih = step.operand("w_ih", forms["w_ih"]);
    const int w_hh = step.operand("w_hh", forms["w_hh"]);
    const int b_ih = step.optional("b_ih", forms["b_ih"]);
    const int b_hh = step.optional("b_hh", forms["b_hh"]);
    const int packed_ih = step.result("packed_w_ih", forms["packed_w_ih"]);
    const int packed_hh = step.result("packed_w_hh", forms["packed_w_hh"]);
    const int bias = step.result("packed_bias", forms["packed_bias"]);
    step.add([=, &rnn](const Addresses& at) {
        RnnPackedWeights packed;
        packed.w_ih = at[packed_ih];
        packed.w_hh = at[packed_hh];
        packed.bias = at[bias];
        pack_weights(rnn.shape(),
                     {.w_ih = at[w_ih], .w_hh = at[w_hh], .b_ih = at[b_ih], .b_hh = at[b_hh]},
                     packed);
    });
}

void add_rnn_transposing(const Rnn& rnn, const Forms& forms, StepValues& step) {
    const int w_ih = step.operand("packed_w_ih", forms["packed_w_ih"]);
    const int w_hh = step.operand("packed_w_hh", forms["packed_w_hh"]);
    const int to_ih = step.result("transposed_w_ih", forms["transposed_w_ih"]);
    const int to_hh = step.result("transposed_w_hh", forms["transposed_w_hh"]);
    step.add([=, &rnn](const Addresses& at) {
        RnnPackedWeights packed;
        packed.w_ih = at[w_ih];
        packed.w_hh = at[w_hh];
        packed.w_ih_transposed = at[to_ih];
        packed.w_hh_transposed = at[to_hh];
        transpose_weights(rnn.shape(), packed);
    });
}

}  // namespace dlprim::bindings
