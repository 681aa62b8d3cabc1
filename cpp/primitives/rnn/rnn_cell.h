// What one step of a recurrent layer computes, as data: the cell, and what ONNX lets a layer change
// about it. All of it goes into the row programs of rnn_gates.h; products know the number of gates,
// and whether a GRU resets its state in front of them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace dlprim {

enum class RnnCell : std::uint8_t { lstm, gru, rnn };
inline constexpr std::array<RnnCell, 3> kRnnCells = {RnnCell::lstm, RnnCell::gru, RnnCell::rnn};

constexpr std::string_view name_of(RnnCell cell) {
    constexpr std::array<std::string_view, kRnnCells.size()> names = {"lstm", "gru", "rnn"};
    return names.at(static_cast<std::size_t>(cell));
}

// Gates in PyTorch's order: i, f, g, o of an LSTM and r, z, n of a GRU; a plain cell has one.
constexpr std::int64_t gates_of(RnnCell cell) {
    constexpr std::array<std::int64_t, kRnnCells.size()> gates = {4, 3, 1};
    return gates.at(static_cast<std::size_t>(cell));
}

// Functions of single elements with up to two numbers, alpha and beta; `usual` is the cell's own.
enum class GateCurve : std::uint8_t {
    usual,
    affine,        // alpha x + beta
    elu,           // alpha (e^x - 1) below 0
    hard_sigmoid,  // alpha x + beta between 0 and 1
    leaky_relu,    // alpha x below 0
    relu,
    scaled_tanh,  // alpha tanh(beta x)
    sigmoid,
    softplus,
    softsign,
    tanh,
    thresholded_relu,  // 0 up to alpha
};

// ONNX's names, but for the first.
inline constexpr std::array<std::string_view, 12> kGateCurves = {
    "",           "Affine",  "Elu",      "HardSigmoid", "LeakyRelu", "Relu",
    "ScaledTanh", "Sigmoid", "Softplus", "Softsign",    "Tanh",      "ThresholdedRelu"};

// Throws std::invalid_argument for a name that is none of those.
GateCurve parse_gate_curve(std::string_view name);

struct GateFunction {
    GateCurve curve = GateCurve::usual;
    float alpha = 0;
    float beta = 0;

    bool operator==(const GateFunction&) const = default;
};

// Unlike the usual form a changed one has no backward pass, but for a plain cell with relu.
struct CellForm {
    // Of an LSTM those of i, f and o, of g, and of the state on its way out; of a GRU those of r
    // and z, and of n; of a plain cell one.
    std::array<GateFunction, 3> functions = {};
    float clip = 0;             // bound of what goes into gates, or 0: none
    bool input_forget = false;  // LSTM: f = 1 - i
    bool peepholes = false;     // LSTM: i and f see c before the step, o behind it
    bool reset_after = true;    // GRU: r multiplies the product with the state, or the state itself

    bool operator==(const CellForm&) const = default;
};

}  // namespace dlprim
