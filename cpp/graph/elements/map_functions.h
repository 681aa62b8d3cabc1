// What a map can do with blocks of elements: functions by their names in the graph and the type of
// their operands, and conversions. Results are those of NumPy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace dlprim {

// Makes so many elements in a row of as many of each operand.
using MapCompute = void (*)(const void* const* in, std::int64_t count, void* out);

struct MapFunction {
    std::size_t operands = 0;
    bool is_condition = false;  // the result is bool, else of the type of the operands
    MapCompute compute = nullptr;
};

// Null where there is none of operands of this type; that of "where" is of what it chooses from.
const MapFunction* find_map_function(const std::string& name, const std::string& dtype);

// Floats are cut towards zero; what a type does not hold is cut to its bits, of floats it is the
// least number of 32 or 64 bits first.
MapCompute map_conversion(const std::string& from, const std::string& to);

// The number in elements of a type, so many in a row.
void fill_elements(const std::string& dtype, double number, std::int64_t count, void* out);

}  // namespace dlprim
