// Which blocks of tiles Winograd convolution takes, and how long it will take, from arithmetic
// alone: the products at the rate of the kernel, the transforms at a few cycles per vector, and
// what the caches do not hold. So the choice between tiles of 4 and 2, and between Winograd and
// the direct algorithm, is a comparison of estimates.
#pragma once

#include <vector>

#include "jit/machine.h"
#include "primitives/winograd/winograd_problem.h"

namespace dlprim {

// More tiles than these in a block are never faster; but a row of them may be one.
inline constexpr std::int64_t kMostTiles = 512;

struct WinogradPlan {
    Schedule schedule;
    double cycles = 0;         // of one thread
    double shared_cycles = 0;  // of all threads together, what they exchange and wait for included
};

// From the fastest on, at most `count` and at least one.
std::vector<WinogradPlan> winograd_plans(const WinogradProblem& problem, const Machine& machine,
                                         int count);

// Estimate of the direct algorithm in the same unit.
double direct_cycles(const ConvProblem& problem, const Machine& machine);

}  // namespace dlprim
