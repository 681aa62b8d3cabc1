#include "jit/element_reference.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace dlprim {
namespace {

float saturated(float value, float lowest, float highest) {
    if (!(value > lowest)) return lowest;  // NaN too
    return std::nearbyint(std::min(value, highest));
}

}  // namespace

void set_element(DType dtype, void* array, std::int64_t index, float value) {
    switch (dtype) {
        case DType::f32: static_cast<float*>(array)[index] = value; break;
        case DType::bf16: static_cast<std::uint16_t*>(array)[index] = bfloat16_bits(value); break;
        case DType::f16: static_cast<std::uint16_t*>(array)[index] = half_bits(value); break;
        case DType::s8:
            static_cast<std::int8_t*>(array)[index] =
                static_cast<std::int8_t>(saturated(value, -128, 127));
            break;
        case DType::u8:
            static_cast<std::uint8_t*>(array)[index] =
                static_cast<std::uint8_t>(saturated(value, 0, 255));
            break;
        case DType::s16:
        case DType::s32: break;  // operands and sums of integer products, never rounded to
    }
}

double activated(Activation activation, double x) {
    const double cube = std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x);
    switch (activation) {
        case Activation::none: return x;
        case Activation::relu: return x < 0 ? 0 : x;  // keeps NaN
        case Activation::relu6: return std::min(x < 0 ? 0 : x, 6.0);
        case Activation::hardsigmoid: return activated(Activation::relu6, x + 3) / 6;
        case Activation::hardswish: return x * activated(Activation::hardsigmoid, x);
        case Activation::sigmoid: return 1 / (1 + std::exp(-x));
        case Activation::tanh: return std::tanh(x);
        case Activation::gelu:
            if (std::isinf(x) && x < 0) return -0.0;
            return 0.5 * x * std::erfc(-x / std::numbers::sqrt2);
        case Activation::gelu_tanh:
            if (x < -30) return -0.0;
            return std::isinf(x) ? x : x / (1 + std::exp(-2 * cube));
        case Activation::swish:
            if (std::isinf(x) && x < 0) return -0.0;
            return x / (1 + std::exp(-x));
    }
    return x;
}

}  // namespace dlprim
