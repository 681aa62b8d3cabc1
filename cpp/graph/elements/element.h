// Elements of any type that NumPy and its extensions have numbers of: types of 16 bits that C++
// does not have, and from the name of a type to the type.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "jit/element_reference.h"

namespace dlprim {

// Odd where it is not exact, so that it is rounded once when it is rounded to fewer bits.
inline float odd_float(double x) {
    const auto made = static_cast<float>(x);
    const auto bits = std::bit_cast<std::uint32_t>(made);
    if (static_cast<double>(made) == x || std::isnan(x) || (bits & 1U) != 0) return made;
    const bool is_above = std::abs(static_cast<double>(made)) > std::abs(x);
    return std::bit_cast<float>(is_above ? bits - 1 : bits + 1);
}

// Computes as float and rounds when it is stored, as NumPy does with halves.
template <auto kBits, auto kValue>
struct Narrow {
    std::uint16_t bits;

    Narrow() = default;
    constexpr explicit Narrow(float value) : bits(kBits(value)) {}
    constexpr operator float() const { return kValue(bits); }
};

using Half = Narrow<half_bits, half_value>;
using Brain = Narrow<bfloat16_bits, bfloat16_value>;

template <class T>
inline constexpr bool kIsNarrow = std::is_same_v<T, Half> || std::is_same_v<T, Brain>;

template <class T>
inline constexpr bool kIsReal = std::is_floating_point_v<T> || kIsNarrow<T>;

// What elements are computed in.
template <class T>
using Computed = std::conditional_t<kIsNarrow<T>, float, T>;

// Stands for a type where a function is called for one.
template <class T>
struct TypeOf {
    using Type = T;
};

// Calls visit(TypeOf<T>()) for NumPy's name of the type; std::invalid_argument for what is none.
template <class Visit>
decltype(auto) with_element_type(const std::string& dtype, const Visit& visit) {
    if (dtype == "bool") return visit(TypeOf<bool>());
    if (dtype == "int8") return visit(TypeOf<std::int8_t>());
    if (dtype == "int16") return visit(TypeOf<std::int16_t>());
    if (dtype == "int32") return visit(TypeOf<std::int32_t>());
    if (dtype == "int64") return visit(TypeOf<std::int64_t>());
    if (dtype == "uint8") return visit(TypeOf<std::uint8_t>());
    if (dtype == "uint16") return visit(TypeOf<std::uint16_t>());
    if (dtype == "uint32") return visit(TypeOf<std::uint32_t>());
    if (dtype == "uint64") return visit(TypeOf<std::uint64_t>());
    if (dtype == "float16") return visit(TypeOf<Half>());
    if (dtype == "bfloat16") return visit(TypeOf<Brain>());
    if (dtype == "float32") return visit(TypeOf<float>());
    if (dtype == "float64") return visit(TypeOf<double>());
    throw std::invalid_argument("elements are of " + dtype +
                                ", expected bool, integers of 8 to 64 bits or floats of 16 to 64");
}

}  // namespace dlprim
