// Element types as values. A kernel's types are fields of its spec and travel as data through
// plan, emitter, cache and bindings, so that a new type is a new enumerator and its arithmetic,
// never a copied file.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace dlprim {

// Of f16 only programs on rows load and store elements; nothing multiplies them.
enum class DType : std::uint8_t { f32, bf16, s32, s8, u8, s16, f16 };

constexpr std::int64_t size_of(DType dtype) {
    constexpr std::array<std::int64_t, 7> sizes = {4, 2, 4, 1, 1, 2, 2};
    return sizes.at(static_cast<std::size_t>(dtype));
}

// Bytes; of a word as neighbours along k share it.
inline constexpr std::int64_t kFloat = size_of(DType::f32);
inline constexpr std::int64_t kWord = 4;

// NumPy's names.
constexpr std::string_view name_of(DType dtype) {
    constexpr std::array<std::string_view, 7> names = {"float32", "bfloat16", "int32",  "int8",
                                                       "uint8",   "int16",    "float16"};
    return names.at(static_cast<std::size_t>(dtype));
}

constexpr bool is_int8(DType dtype) { return dtype == DType::s8 || dtype == DType::u8; }

// Whether bfloat16 holds all numbers of the type.
constexpr bool fits_bf16(DType dtype) { return size_of(dtype) < 4 && dtype != DType::f16; }

// Of operands whose products are added up exactly, as int32.
constexpr bool is_integer(DType dtype) { return is_int8(dtype) || dtype == DType::s16; }

// Neighbours along k that share a 32-bit word of A and of the packed B: the unit in which a kernel
// steps along k.
constexpr std::int64_t elements_per_word(DType dtype) { return kWord / size_of(dtype); }

}  // namespace dlprim
