// The activations that generated code applies, as values, and how many vector registers each
// overwrites beside its value: planners subtract them from what a tile can have, so they are known
// without the assembler.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace dlprim {

enum class Activation : std::uint8_t {
    none,
    relu,
    relu6,
    sigmoid,
    hardsigmoid,
    tanh,
    gelu,
    gelu_tanh,
    swish,
    hardswish,
};

inline constexpr std::array<std::string_view, 10> kActivationNames = {
    "none", "relu", "relu6",     "sigmoid", "hardsigmoid",
    "tanh", "gelu", "gelu_tanh", "swish",   "hardswish"};

constexpr std::string_view name_of(Activation activation) {
    return kActivationNames.at(static_cast<std::size_t>(activation));
}

inline constexpr int kExponentialRegisters = 3;

constexpr int activation_registers(Activation activation) {
    constexpr std::array registers = {0, 1, 1, 2, 1, 3, 4, 4, 4, 1};
    return registers.at(static_cast<std::size_t>(activation));
}

}  // namespace dlprim
