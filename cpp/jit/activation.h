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

constexpr int activation_registers(Activation activation) {
    switch (activation) {
        case Activation::none: return 0;
        case Activation::relu:
        case Activation::relu6:
        case Activation::hardsigmoid:
        case Activation::hardswish: return 1;
        case Activation::sigmoid: return 2;
        case Activation::tanh: return 3;
        case Activation::gelu:
        case Activation::gelu_tanh:
        case Activation::swish: return 4;
    }
    return 0;
}

}  // namespace dlprim
