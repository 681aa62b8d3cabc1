// Steps that map rows to rows, run for a piece of the rows at a time: a network of its own makes a
// piece of the results of a piece of the inputs. What lies between its steps is as small as a
// piece, is the thread's own and stays in its caches, and threads meet once for all of the steps.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/network.h"

namespace dlprim {

// Finished networks of the same inputs and results but for their first extents, and what these are
// parts of.
struct RowPieces {
    const Network& piece;
    const Network* rest = nullptr;  // for what is left behind the last whole piece, or null
    std::vector<int> inputs = {};   // values of the network that gets the step, dense
    std::vector<int> results = {};
};

// Networks stay where they are. Throws std::invalid_argument where values are not as many whole
// pieces and one rest as others, or where a step of a piece runs alone.
NetworkStep piece_step(const Network& network, const RowPieces& pieces, std::string label);

}  // namespace dlprim
