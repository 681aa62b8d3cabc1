// The greatest or least elements along an axis, in order, and where they are.
#pragma once

#include <string>

#include "graph/network_step.h"

namespace dlprim {

class Network;

// All dense. `values` and `places` are of one shape, which is that of `src` but along the axis.
struct TopValues {
    int src = -1;
    int values = -1;
    int places = -1;  // int64
};

struct TopOf {
    int axis = 0;
    bool largest = true;
};

// Of equal elements the first comes first; what is no number is greater than all numbers. Throws
// std::invalid_argument for other shapes or types.
NetworkStep top_step(const Network& network, const TopValues& values, const TopOf& of,
                     std::string label);

}  // namespace dlprim
