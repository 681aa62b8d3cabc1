// Rows that go through some of several networks each: mixtures of experts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/network_step.h"

namespace dlprim {

class Network;

struct RoutedRows {
    // Of each expert a finished network for each of the sizes: from (size, C) to (size, K).
    std::vector<std::vector<const Network*>> experts = {};
    std::vector<std::int64_t> sizes = {};  // of pieces of rows, ascending from 1
    // Values: (rows, C), (experts, rows), (rows, K), dense, of float32.
    int rows = -1, shares = -1, dst = -1;
};

// Of each row the sum of what its experts make of it, times its share of each; an expert whose
// share is 0 has no part. The networks stay where they are. Throws std::invalid_argument where they
// do not fit the values.
NetworkStep routed_rows_step(const Network& network, const RoutedRows& routed, std::string label);

}  // namespace dlprim
