// What loading, storing and activating one element means, in plain C++: both generators' oracles
// are made of it, and with them all that runs where there are no vectors. Element types and
// activations are the same data here as in generated code.
#pragma once

#include <bit>
#include <cstdint>

#include "jit/activation.h"
#include "jit/dtype.h"

namespace dlprim {

// Element `index` of an array of any type but int32, widened.
inline float element_at(DType dtype, const void* array, std::int64_t index) {
    switch (dtype) {
        case DType::f32: return static_cast<const float*>(array)[index];
        case DType::bf16: {
            const std::uint32_t bits = static_cast<const std::uint16_t*>(array)[index];
            return std::bit_cast<float>(bits << 16);
        }
        case DType::s8: return static_cast<const std::int8_t*>(array)[index];
        case DType::u8: return static_cast<const std::uint8_t*>(array)[index];
        case DType::s16: return static_cast<const std::int16_t*>(array)[index];
        case DType::s32: break;
    }
    return 0;
}

// Rounds to nearest even; int8 saturates, with NaN as the lowest value.
void set_element(DType dtype, void* array, std::int64_t index, float value);

// As exact as the C++ library, and with the right limits. relu keeps NaN.
double activated(Activation activation, double x);

}  // namespace dlprim
