// Rows of a table by index, as embeddings are. Indices are data, so each run looks at all of them
// before it reads a row.
#pragma once

#include <cstdint>
#include <string>

#include "graph/network_step.h"

namespace dlprim {

class Network;

// Values: `dst` is (before..., indices' shape..., row's shape...) of a table (before..., rows,
// row's shape...), all dense.
struct GatheredValues {
    int table = -1;
    // int32 or int64, from -rows to rows - 1, of which those below 0 count from the end; or uint8
    // of a table of 256 elements.
    int indices = -1;
    int dst = -1;
    int axis = 0;  // of the rows
    // What messages call the indices of, where those below 0 are refused, too.
    std::string argument = {};
};

// Throws std::out_of_range: an index is none of so many rows, or of an argument with this name.
[[noreturn]] void refuse_index(const std::string& argument, std::int64_t index, std::int64_t rows);

// Throws std::invalid_argument for other shapes or types; the step throws std::out_of_range for
// indices that the table does not have, before it writes.
NetworkStep gather_step(const Network& network, const GatheredValues& values, std::string label);

}  // namespace dlprim
