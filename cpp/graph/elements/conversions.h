// Elements of one type as those of another, as NumPy turns them.
#pragma once

#include <cstdint>
#include <string>

namespace dlprim {

// Makes so many elements in a row of as many of each operand.
using MapCompute = void (*)(const void* const* in, std::int64_t count, void* out);

// Floats are cut towards zero; what a type does not hold is cut to its bits, of floats it is the
// least number of 32 or 64 bits first.
MapCompute map_conversion(const std::string& from, const std::string& to);

// The number in elements of a type, so many in a row.
void fill_elements(const std::string& dtype, double number, std::int64_t count, void* out);

}  // namespace dlprim
