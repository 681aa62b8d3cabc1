// What loading, storing and activating one element means, in plain C++: both generators' oracles
// are made of it, and with them all that runs where there are no vectors. Element types and
// activations are the same data here as in generated code.
#pragma once

#include <bit>
#include <cstdint>

#include "jit/activation.h"
#include "jit/dtype.h"

namespace dlprim {

// To the nearest number of 10 bits behind the first one; ties to the even one.
constexpr std::uint16_t half_bits(float x) {
    const auto bits = std::bit_cast<std::uint32_t>(x);
    const auto sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000U);
    const std::uint32_t size = bits & 0x7FFFFFFFU;
    if (size > 0x7F800000U) {  // no number: the upper bits stay, and it becomes quiet
        return static_cast<std::uint16_t>(sign | 0x7E00U | (size >> 13 & 0x3FFU));
    }
    if (size >= 0x477FF000U) return static_cast<std::uint16_t>(sign | 0x7C00U);
    if (size < 0x38800000U) {  // below the normal ones: adding lines the last bits up
        const float lined = std::bit_cast<float>(size) + 0.5F;
        return static_cast<std::uint16_t>(sign |
                                          (std::bit_cast<std::uint32_t>(lined) - 0x3F000000U));
    }
    const std::uint32_t rounded = size + 0xFFFU + (size >> 13 & 1U);
    return static_cast<std::uint16_t>(sign | ((rounded - 0x38000000U) >> 13));
}

constexpr float half_value(std::uint16_t bits) {
    const std::uint32_t sign = (bits & 0x8000U) << 16;
    const std::uint32_t size = bits & 0x7FFFU;
    if (size >= 0x7C00U) return std::bit_cast<float>(sign | 0x7F800000U | (size & 0x3FFU) << 13);
    if (size < 0x0400U) {
        const float made = static_cast<float>(size) * 0x1p-24F;
        return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(made));
    }
    return std::bit_cast<float>(sign | ((size << 13) + 0x38000000U));
}

// A NaN keeps its upper bits and becomes quiet.
constexpr std::uint16_t bfloat16_bits(float x) {
    const auto bits = std::bit_cast<std::uint32_t>(x);
    if ((bits & 0x7FFFFFFFU) > 0x7F800000U) return static_cast<std::uint16_t>(bits >> 16 | 0x40U);
    return static_cast<std::uint16_t>((bits + 0x7FFFU + (bits >> 16 & 1U)) >> 16);
}

constexpr float bfloat16_value(std::uint16_t bits) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

// Element `index` of an array of any type but int32, widened.
inline float element_at(DType dtype, const void* array, std::int64_t index) {
    switch (dtype) {
        case DType::f32: return static_cast<const float*>(array)[index];
        case DType::bf16: return bfloat16_value(static_cast<const std::uint16_t*>(array)[index]);
        case DType::f16: return half_value(static_cast<const std::uint16_t*>(array)[index]);
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
