#pragma once
#include "brgemm/isa.h"
#include "brgemm/spec.h"
namespace dlprim {
constexpr int activation_registers(Activation activation, Isa isa) {
    if (activation == Activation::none) return 0;
    if (activation == Activation::relu) return 1;
    return isa >= Isa::avx512 ? 8 : 4;
}
}
