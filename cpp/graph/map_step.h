// Elements of integers and conditions: masks, places of words, and what else a network decides by.
// Integers are computed exactly, in 64 bits and cut to their type, which the row engine does not
// do. Such arrays are small beside those that products make, so operations are looked up for every
// block of elements, not compiled.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/network_step.h"

namespace dlprim {

class Network;

// What one operation makes of what others have made. Floats are read, chosen, compared and stored,
// never computed with.
struct MapOperation {
    std::string function = {};  // of kMapFunctions, "input", "number" or "cast"
    std::string dtype = {};     // of the result: bool, int8 to int64, uint8, float32 or float64
    // Numbers of operations before; of an input its place among the operands.
    std::vector<int> operands = {};
    double number = 0;
};

struct MappedValues {
    std::vector<int> operands = {};  // views of the result's shape, with any strides
    int dst = -1;                    // dense
};

// The last operation's result is stored. Throws std::invalid_argument for operations or values that
// do not fit.
NetworkStep map_step(const Network& network, const std::vector<MapOperation>& operations,
                     const MappedValues& values, std::string label);

}  // namespace dlprim
