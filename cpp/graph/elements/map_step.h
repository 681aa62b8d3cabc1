// Elements of integers, conditions and wide floats: masks, places of words, and what else a network
// decides by. Operations are those of NumPy, in the types that it computes in, which the row engine
// does not do. They run for a block of elements at a time, which stays in the nearest cache; they
// are looked up, not compiled, because such arrays are small beside those that products make.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/network_step.h"

namespace dlprim {

class Network;

// What one operation makes of what others have made, all of one type but what "where" decides by.
struct MapOperation {
    std::string function = {};  // of map_functions.h, "input", "number" or "cast"
    std::string dtype = {};     // of the result, by the name that element.h knows
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
