// Rows written into a cache of keys or values behind those that are there. How many those are is
// data, so one network serves all of them. Where nothing else reads what the cache was, rows are
// all that is written.
#pragma once

#include <string>

#include "graph/network_step.h"

namespace dlprim {

class Network;

// Values: `dst` is `cache` (N, H, places, size) with the rows (N, H, count, size) of each sequence
// from the place on that `places` (N) has for it, int64. Elements of rows are next to each other.
struct PlacedRowsValues {
    int cache = -1;
    int rows = -1;
    int places = -1;
    int dst = -1;
};

// Throws std::invalid_argument for other shapes or types; the step throws std::out_of_range where
// there are no such places, before it writes.
NetworkStep placed_rows_step(const Network& network, const PlacedRowsValues& values,
                             std::string label);

}  // namespace dlprim
