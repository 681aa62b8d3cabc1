// Steps of time: a network that runs once for each of them, in order, and begins with what the one
// in front of it left. Arrays that have a part for each step of time are read and written where
// they lie, and so are states: a step reads what the last one wrote, wherever that is.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
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
    // A part for each step; those with fewer parts, or with two whatever the steps, begin again
    // behind the last.
    std::vector<int> results = {};
    std::vector<int> carried = {};  // by state, which of the results the next step reads as it
    bool reverse = false;           // from the last parts to the first
};

// The body stays where it is. Throws std::invalid_argument where values are not as many parts as
// there are steps, or where a step of the body runs alone.
NetworkStep repeat_step(const Network& network, const RepeatedSteps& steps, std::string label);

// A finished network that runs again and again while a condition holds, outside of any other: what
// its inputs and results are to the loop.
struct LoopedBody {
    enum class Feed { fixed, number, condition, state, row };

    const Network& body;
    std::vector<std::pair<Feed, int>> feeds = {};  // of each input, and the place among those
    // Of each state the result that the next run reads as it; -1 where it stays as it is.
    std::vector<int> carried = {};
    int condition = -1;  // the result that says whether to go on; -1 where that stays as it is
    // Of each list of rows that are kept, a result or, with false, a state as it was given.
    std::vector<std::pair<bool, int>> kept = {};
};

// Arrays of the kinds above. Rows lie one behind the other; each result has two places by turns.
struct LoopArrays {
    std::vector<char*> fixed = {}, states = {}, rows = {}, kept = {};
    std::vector<std::int64_t> kept_bytes = {};  // of a row
    std::vector<std::array<char*, 2>> results = {};
};

struct LoopRuns {
    std::int64_t first = 0, count = 0;  // numbers of the runs
    bool holds = true;
    double seconds = 0;  // after which it stops
};

// What has run, and whether the condition holds behind it. `arrays.states` are the last ones then.
LoopRuns run_looped(const LoopedBody& it, LoopArrays& arrays, const LoopRuns& runs);

}  // namespace dlprim
