// Machines as they describe themselves, so that their plans are tested on every other one.
#pragma once

#include "jit/machine.h"

namespace dlprim::testing {

inline constexpr Machine kZen3{.l1 = 32768,
                               .l2 = 524288,
                               .fma_latency = 4,
                               .bytes_from_l2_per_cycle = 25,
                               .scattered_bytes_from_l2_per_cycle = 14,
                               .l2_exposed = 0.1};

// At AVX2.
inline constexpr Machine kZen4{.l1 = 32768,
                               .l2 = 1048576,
                               .fma_latency = 4,
                               .bytes_from_l2_per_cycle = 32,
                               .scattered_bytes_from_l2_per_cycle = 20,
                               .l2_exposed = 0.05};

inline constexpr Machine kZen4At512{.l1 = 32768, .l2 = 1048576, .vector_ops_per_cycle = 2};

inline constexpr Machine kIntel{
    .l1 = 49152, .l2 = 2097152, .l1_ways = 12, .vector_ops_per_cycle = 2, .fma_latency = 4};

}  // namespace dlprim::testing
