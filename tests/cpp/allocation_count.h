// Counts what a program takes from operator new, in all threads. Linking the .cpp replaces the
// operator, so tests that count are a program of their own.
#pragma once

#include <cstdint>

namespace dlprim::testing {

struct Allocations {
    std::int64_t calls = 0;
    std::int64_t scratch_bytes = 0;  // of those with an alignment of their own, as scratch has
};

// Since the program began.
Allocations allocations();

}  // namespace dlprim::testing
