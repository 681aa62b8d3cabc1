// What the elements along an axis come to, one after the other: sums, products and extremes, of any
// type; and what they have come to at each of them. Floats are summed in double
// precision. float32 and bfloat16 of known sums run on the row engine instead.
#pragma once

#include <string>

#include "graph/network_step.h"

namespace dlprim {

class Network;

struct FoldedValues {
    int src = -1;  // dense, of three axes: before, along and behind
    // Dense: (before, behind); for what it has come to at each, that of `src`.
    int dst = -1;
};

struct AxisFold {
    // "sum", "mean", "product", "max", "min"; "running_sum", "running_product"
    std::string function = {};
    bool exclusive = false;  // at each element of those in front of it
    bool reverse = false;    // from the last element to the first
};

// Of no elements a sum is 0, a product 1, an extreme the end of the type. Throws
// std::invalid_argument for other shapes, types or functions.
NetworkStep fold_step(const Network& network, const FoldedValues& values, const AxisFold& fold,
                      std::string label);

}  // namespace dlprim
