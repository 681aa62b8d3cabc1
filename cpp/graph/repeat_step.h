// Steps of time: a network that runs once for each of them, in order, and begins with what the one
// in front of it left. Arrays that have a part for each step of time are read and written where
// they lie, and so are states: a step reads what the last one wrote, wherever that is.
#pragma once

#include <string>
#include <vector>

#include "graph/network.h"

namespace dlprim {

// A finished network, whose inputs are parts of `inputs` and behind them states, and what its
// results are parts of. All are values of the network that gets the step, dense; parts lie one
// behind the other.
struct RepeatedSteps {
    const Network& body;
    std::vector<int> inputs = {};  // a part for each step; the first says how many there are
    std::vector<int> states = {};  // as they are in front of the first step
    // A part for each step; those with fewer parts, two at least, begin again behind the last.
    std::vector<int> results = {};
    std::vector<int> carried = {};  // by state, which of the results the next step reads as it
    bool reverse = false;           // from the last parts to the first
};

// The body stays where it is. Throws std::invalid_argument where values are not as many parts as
// there are steps, or where a step of the body runs alone.
NetworkStep repeat_step(const Network& network, const RepeatedSteps& steps, std::string label);

}  // namespace dlprim
