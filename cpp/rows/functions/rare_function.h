// Functions of which few operands take a long way: generated code calls them, one element after the
// other, for a vector that has such an element, and goes past them for all others.
#pragma once

#include <cstdint>

#include "rows/row_builder.h"

namespace dlprim {

enum class RareFunction : std::uint8_t { sin, cos, tan, fmod };
inline constexpr int kRareFunctions = 4;

// Operands are rare where a size, which the function says, is above this.
constexpr float rare_above(RareFunction function) {
    return function == RareFunction::fmod ? 0x1p22F : 0x1p17F;
}

// Of b only some take notice. As exact as the C++ library in double precision, rounded once.
float rare_value(RareFunction function, float a, float b);

// What generated code calls: of `operands`, the vectors a, b and the result of so many lanes, the
// results that the bits of `chosen` name are written.
void replace_rare(float* operands, std::uint32_t chosen, std::uint32_t lanes,
                  std::uint32_t function);

// `usual`, but where `size` says so the function of a and b.
inline RowValue unless_rare(RareFunction function, RowValue size, RowValue usual, RowValue a,
                            RowValue b) {
    return RowBuilder::apply(RowOp::rare, {a, size, usual, b}, static_cast<std::uint8_t>(function));
}

}  // namespace dlprim
