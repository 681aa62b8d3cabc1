// Rows added up into a table by index, as the gradients of embeddings are. Indices are data, so
// each run looks at all of them before it writes.
#pragma once

#include <string>

#include "graph/network_step.h"

namespace dlprim {

class Network;

// Values: `src` is float32 or bfloat16 (indices' shape..., row's shape...), `dst` float32 (rows,
// row's shape...), all dense.
struct ScatteredValues {
    int src = -1;
    // int32 or int64, from -rows to rows - 1, of which those below 0 count from the end.
    int indices = -1;
    int dst = -1;
    // What messages call the indices of, where those below 0 are refused, too.
    std::string argument = {};
};

// The sum of a row runs in the order of the indices; rows that none names are zero. Throws
// std::invalid_argument for other shapes or types; the step throws std::out_of_range for indices
// that the table does not have, before it writes.
NetworkStep scatter_add_step(const Network& network, const ScatteredValues& values,
                             std::string label);

}  // namespace dlprim
