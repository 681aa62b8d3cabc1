// Elements at places that an array says: taken from there, or written there. Places are data, so
// each one is looked at before it is used.
#pragma once

#include <string>

#include "graph/network_step.h"

namespace dlprim {

class Network;

// All dense. With `updates` the result is `src` with these written into it, else it is what is
// taken from it.
struct IndexedValues {
    int src = -1;
    int indices = -1;  // int32 or int64; those below 0 count from the end
    int updates = -1;
    int dst = -1;
};

struct Indexing {
    // An index for each element, which says where it is along this axis and along the others is
    // where the index is; -1: indices along several axes stand side by side in the last axis.
    int axis = -1;
    int batch = 0;  // first axes that go with those of the indices, of axis -1
    // Of updates with what is there: "none", "add", "mul", "max" or "min", in the order of the
    // indices.
    std::string how = "none";
};

// Throws std::invalid_argument for other shapes or types; the step throws std::out_of_range for
// indices that the array does not have.
NetworkStep indexed_step(const Network& network, const IndexedValues& values,
                         const Indexing& indexing, std::string label);

}  // namespace dlprim
