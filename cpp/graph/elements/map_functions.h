// What a map can do with blocks of elements: functions by their names in the graph and the type of
// their operands. Results are those of NumPy.
#pragma once

#include <cstddef>
#include <string>

#include "graph/elements/conversions.h"

namespace dlprim {

struct MapFunction {
    std::size_t operands = 0;
    bool is_condition = false;  // the result is bool, else of the type of the operands
    MapCompute compute = nullptr;
    MapCompute to_floats = nullptr;  // of a comparison, the numbers 0 and 1 as float32
};

// Null where there is none of operands of this type; that of "where" is of what it chooses from.
const MapFunction* find_map_function(const std::string& name, const std::string& dtype);

}  // namespace dlprim
