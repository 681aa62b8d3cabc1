#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <stdexcept>
#include <vector>

#include <doctest/doctest.h>

#include "primitives/rnn/rnn.h"
#include "primitives/tensor/parallel.h"

namespace dlprim {
namespace {

using Tensor = std::vector<float>;

std::size_t size(std::int64_t count) { return static_cast<std::size_t>(count); }

Tensor normal(std::int64_t elements, std::uint32_t seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> value;
    Tensor tensor(size(elements));
    for (float& it : tensor) it = value(random) / 2;
    return tensor;
}

// A layer with random operands and everything that both passes write.
struct Problem {
    explicit Problem(const RnnShape& it)
        : shape(it),
          src(normal(it.rows() * it.C, 1)),
          w_ih(normal(it.gates() * it.K * it.C, 2)),
          w_hh(normal(it.gates() * it.K * it.K, 3)),
          bias(normal(it.gates() * it.K, 4)),
          diff_dst(normal(it.rows() * it.K, 5)),
          packed_ih(size(it.gates() * it.state().padded() * it.src().padded())),
          packed_hh(size(it.gates() * it.state().padded() * it.state().padded())),
          transposed_ih(packed_ih.size()),
          transposed_hh(packed_hh.size()),
          packed_bias(size(4 * it.vectors().channels)),
          dst(size(it.rows() * it.K)),
          gates(size(it.rows() * it.gates() * it.K)),
          cells(dst.size()),
          state(size(it.N * it.K)),
          diff_src(src.size()),
          diff_ih(w_ih.size()),
          diff_hh(w_hh.size()),
          diff_bias(bias.size()),
          peepholes(normal(3 * it.K, 6)) {
        pack_weights(shape, {w_ih.data(), w_hh.data(), bias.data(), bias.data()}, weights());
        if (shape.has_backward()) transpose_weights(shape, weights());
    }

    void infer(const Rnn& rnn) {
        Tensor last_cells(state.size());
        rnn.forward({.src = src.data(),
                     .weights = weights(),
                     .peepholes = peepholes.data(),
                     .dst = dst.data(),
                     .h_n = state.data(),
                     .c_n = last_cells.data()});
    }

    RnnPackedWeights weights() {
        return {packed_ih.data(), packed_hh.data(), transposed_ih.data(), transposed_hh.data(),
                packed_bias.data()};
    }

    void run(const Rnn& rnn) {
        const bool lstm = shape.cell == RnnCell::lstm;
        const RnnSaved saved{.gates = gates.data(),
                             .cells = lstm ? cells.data() : nullptr,
                             .hidden_n = lstm ? nullptr : cells.data()};
        Tensor last_cells(state.size());
        rnn.forward({.src = src.data(),
                     .weights = weights(),
                     .dst = dst.data(),
                     .h_n = state.data(),
                     .c_n = last_cells.data(),
                     .saved = saved});
        Tensor other_bias(diff_bias.size());
        rnn.backward({.diff_dst = diff_dst.data(),
                      .weights = weights(),
                      .src = src.data(),
                      .dst = dst.data(),
                      .saved = saved,
                      .diff_src = diff_src.data(),
                      .diff_h_0 = state.data(),
                      .diff_c_0 = last_cells.data(),
                      .diff_w_ih = diff_ih.data(),
                      .diff_w_hh = diff_hh.data(),
                      .diff_b_ih = diff_bias.data(),
                      .diff_b_hh = other_bias.data()});
    }

    Tensor results() const {
        Tensor all = dst;
        for (const Tensor* part : {&diff_src, &diff_ih, &diff_hh, &diff_bias, &state}) {
            all.insert(all.end(), part->begin(), part->end());
        }
        return all;
    }

    RnnShape shape;
    Tensor src, w_ih, w_hh, bias, diff_dst;
    Tensor packed_ih, packed_hh, transposed_ih, transposed_hh, packed_bias;
    Tensor dst, gates, cells, state, diff_src, diff_ih, diff_hh, diff_bias, peepholes;
};

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

TEST_CASE("panels are equal, multiples of sixteen, and hold all channels") {
    for (std::int64_t channels = 1; channels <= 300; ++channels) {
        const Panels panels = panels_of(channels);
        CAPTURE(channels);
        CHECK(panels.width % 16 == 0);
        CHECK(panels.width <= 64);
        CHECK(panels.padded() >= channels);
        CHECK(panels.at(panels.count() - 1).size() > 0);
        CHECK(panels.at(panels.count() - 1).end == channels);
    }
}

TEST_CASE("gradients of weights sum lines where registers are few") {
    Machine machine;
    CHECK(most_line_width(DType::f32, machine) == 64);
    machine.vector_registers = 16;
    CHECK(most_line_width(DType::f32, machine) == 16);
    CHECK(most_line_width(DType::bf16, machine) == 64);
}

TEST_CASE("impossible shapes are refused by name") {
    CHECK_THROWS_WITH_AS(Rnn({.T = 1, .N = 1, .C = 0, .K = 1}),
                         "C is 0, expected an integer from 1 to 2^24", std::invalid_argument);
    CHECK_THROWS_AS(Rnn({.T = -1, .N = 1, .C = 1, .K = 1}), std::invalid_argument);
    CHECK_THROWS_AS(Rnn({.T = 1 << 20, .N = 1 << 20, .C = 1, .K = 1}), std::invalid_argument);
}

TEST_CASE("one LSTM cell of one channel computes what the equations say") {
    Problem problem({.cell = RnnCell::lstm, .T = 3, .N = 1, .C = 1, .K = 1});
    problem.run(Rnn(problem.shape));
    double h = 0;
    double c = 0;
    for (std::size_t t = 0; t < 3; ++t) {
        const auto input = [&](std::size_t gate) {
            return problem.w_ih[gate] * double{problem.src[t]} + problem.w_hh[gate] * h +
                   2 * double{problem.bias[gate]};
        };
        c = sigmoid(input(1)) * c + sigmoid(input(0)) * std::tanh(input(2));
        h = sigmoid(input(3)) * std::tanh(c);
        CHECK(problem.dst[t] == doctest::Approx(h).epsilon(1e-5));
        CHECK(problem.cells[t] == doctest::Approx(c).epsilon(1e-5));
    }
}

TEST_CASE("a plain cell of one channel goes back as its equation says") {
    Problem problem({.cell = RnnCell::rnn, .T = 3, .N = 1, .C = 1, .K = 1});
    problem.run(Rnn(problem.shape));
    const double w_ih = problem.w_ih[0], w_hh = problem.w_hh[0];
    std::array<double, 4> h = {};  // and in front of the first step
    for (std::size_t t = 0; t < 3; ++t) {
        h[t + 1] = std::tanh(w_ih * problem.src[t] + w_hh * h[t] + 2 * double{problem.bias[0]});
        CHECK(problem.dst[t] == doctest::Approx(h[t + 1]).epsilon(1e-5));
    }
    double diff = 0, diff_ih = 0, diff_hh = 0, diff_bias = 0;
    for (std::size_t t = 3; t-- > 0;) {
        const double delta = (diff + problem.diff_dst[t]) * (1 - h[t + 1] * h[t + 1]);
        CHECK(problem.diff_src[t] == doctest::Approx(delta * w_ih).epsilon(1e-4));
        diff_ih += delta * problem.src[t];
        diff_hh += delta * h[t];
        diff_bias += delta;
        diff = delta * w_hh;
    }
    CHECK(problem.diff_ih[0] == doctest::Approx(diff_ih).epsilon(1e-4));
    CHECK(problem.diff_hh[0] == doctest::Approx(diff_hh).epsilon(1e-4));
    CHECK(problem.diff_bias[0] == doctest::Approx(diff_bias).epsilon(1e-4));
}

TEST_CASE("a GRU of one channel resets its state in front of the product") {
    const RnnShape shape{.cell = RnnCell::gru,
                         .T = 3,
                         .N = 1,
                         .C = 1,
                         .K = 1,
                         .form = {.clip = 0.4F, .reset_after = false}};
    Problem problem(shape);
    problem.infer(Rnn(shape));
    const auto clipped = [](double x) { return std::clamp(x, -0.4, 0.4); };
    double h = 0;
    for (std::size_t t = 0; t < 3; ++t) {
        const auto sum = [&](std::size_t gate, double state) {
            return clipped(problem.w_ih[gate] * double{problem.src[t]} +
                           problem.w_hh[gate] * state + 2 * double{problem.bias[gate]});
        };
        const double r = sigmoid(sum(0, h)), z = sigmoid(sum(1, h));
        h = (1 - z) * std::tanh(sum(2, r * h)) + z * h;
        CHECK(problem.dst[t] == doctest::Approx(h).epsilon(1e-5));
    }
}

TEST_CASE("an LSTM of one channel looks through peepholes") {
    RnnShape shape{.cell = RnnCell::lstm, .T = 3, .N = 1, .C = 1, .K = 1};
    Problem problem(shape);
    problem.shape.form = {.functions = {{{GateCurve::hard_sigmoid, 0.25F, 0.5F},
                                         {GateCurve::softsign},
                                         {GateCurve::scaled_tanh, 0.5F, 2.0F}}},
                          .peepholes = true};
    problem.infer(Rnn(problem.shape));
    const auto gate = [](double x) { return std::clamp(0.25 * x + 0.5, 0.0, 1.0); };
    double h = 0, c = 0;
    for (std::size_t t = 0; t < 3; ++t) {
        const auto sum = [&](std::size_t at, double look) {
            return problem.w_ih[at] * double{problem.src[t]} + problem.w_hh[at] * h +
                   2 * double{problem.bias[at]} + look;
        };
        const double i = gate(sum(0, problem.peepholes[0] * c));
        const double f = gate(sum(1, problem.peepholes[1] * c));
        const double g = sum(2, 0);
        c = f * c + i * g / (1 + std::abs(g));
        h = gate(sum(3, problem.peepholes[2] * c)) * 0.5 * std::tanh(2 * c);
        CHECK(problem.dst[t] == doctest::Approx(h).epsilon(1e-5));
    }
}

TEST_CASE("forms that no cell has are refused, and so are their gradients") {
    RnnShape plain{.cell = RnnCell::rnn, .T = 2, .N = 1, .C = 1, .K = 1};
    RnnShape wrong = plain;
    wrong.form.peepholes = true;
    CHECK_THROWS_WITH_AS(Rnn{wrong}, "input_forget and peepholes are an LSTM's, the cell is rnn",
                         std::invalid_argument);
    wrong.form = {.reset_after = false};
    CHECK_THROWS_WITH_AS(Rnn{wrong}, "reset_after is a GRU's, the cell is rnn",
                         std::invalid_argument);
    wrong.form = {.clip = -1};
    CHECK_THROWS_AS(Rnn{wrong}, std::invalid_argument);
    CHECK_THROWS_AS(parse_gate_curve("Sine"), std::invalid_argument);
    CHECK(parse_gate_curve("ThresholdedRelu") == GateCurve::thresholded_relu);
    plain.form.functions[0].curve = GateCurve::softsign;
    Rnn rnn(plain);
    CHECK(rnn.passes() == std::vector<RnnPass>{RnnPass::projection, RnnPass::recurrence});
    CHECK_THROWS_AS(rnn.schedule(RnnPass::diff_src), std::invalid_argument);
    CHECK_THROWS_AS(rnn.backward({}), std::invalid_argument);
    float gates = 0;
    CHECK_THROWS_AS(rnn.forward({.saved = {.gates = &gates}}), std::invalid_argument);
}

TEST_CASE("results are the same bits for any number of threads") {
    const int before = num_threads();
    for (const RnnCell cell : kRnnCells) {
        Problem problem({.cell = cell, .T = 5, .N = 70, .C = 40, .K = 150});
        const Rnn rnn(problem.shape);
        set_num_threads(1);
        problem.run(rnn);
        const Tensor expected = problem.results();
        for (const int threads : {2, 3, 8}) {
            set_num_threads(threads);
            problem.run(rnn);
            CHECK(problem.results() == expected);
        }
    }
    set_num_threads(before);
}

TEST_CASE("calls that are found once compute what the walk through the nest does") {
    const int before = num_threads();
    for (const bool reset_after : {true, false}) {
        // Two threads share a step, one repeats its calls.
        const RnnShape shape{.cell = RnnCell::gru,
                             .T = 6,
                             .N = 3,
                             .C = 40,
                             .K = 150,
                             .form = {.reset_after = reset_after}};
        Problem problem(shape);
        const Rnn rnn(shape);
        set_num_threads(2);
        problem.infer(rnn);
        const Tensor expected = problem.dst;
        set_num_threads(1);
        problem.infer(rnn);
        CHECK(problem.dst == expected);
    }
    set_num_threads(before);
}

TEST_CASE("other schedules compute the same, impossible ones are refused") {
    Problem problem({.cell = RnnCell::gru, .T = 3, .N = 10, .C = 70, .K = 130});
    Rnn rnn(problem.shape);
    problem.run(rnn);
    const Tensor expected = problem.results();
    rnn.set_schedule(RnnPass::recurrence, parse_schedule("N4 K g c2"));
    rnn.set_schedule(RnnPass::diff_recurrence, parse_schedule("K N3 s2"));
    rnn.set_schedule(RnnPass::projection, parse_schedule("G c N7 K"));
    problem.run(rnn);
    const Tensor found = problem.results();
    for (std::size_t i = 0; i < found.size(); ++i) {
        CHECK(found[i] == doctest::Approx(expected[i]).epsilon(1e-3));
    }
    for (const char* const text : {"g N K c3", "N K G c3", "c3 N K g", "N6 K n4 g c3"}) {
        CHECK_THROWS_AS(rnn.set_schedule(RnnPass::recurrence, parse_schedule(text)),
                        std::invalid_argument);
    }
}

}  // namespace
}  // namespace dlprim
