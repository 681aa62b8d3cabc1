// How many vector registers an activation overwrites beside its value. The planner subtracts them
// from what a tile can have, so they are known without the assembler.
#pragma once

#include "brgemm/isa.h"
#include "brgemm/spec.h"

namespace dlprim {

constexpr int activation_registers(Activation activation) {
    switch (activation) {
        case Activation::none: return 0;
        case Activation::relu: return 1;
        case Activation::sigmoid: return 2;
        case Activation::tanh: return 3;
        case Activation::gelu:
        case Activation::gelu_tanh:
        case Activation::swish: return 4;
    }
    return 0;
}

}  // namespace dlprim
