// Copies from one value of a network to another of the same shape and type, however either lies:
// transposing, slicing, and the parts of a concatenation are this.
#pragma once

#include <string>

#include "graph/network_step.h"

namespace dlprim {

class Network;

// Throws std::invalid_argument where shapes or types differ.
NetworkStep copy_step(const Network& network, int src, int dst, std::string label);

}  // namespace dlprim
