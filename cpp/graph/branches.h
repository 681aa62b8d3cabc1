// Which steps of a network run beside each other. A step that is too small for all threads leaves
// the others idle; where a stretch of such steps falls into branches that share nothing but what
// they all only read, each thread takes a branch. A pure function of what steps cost and of which
// ones wait for which, so that it can be tested without a network.
#pragma once

#include <cstddef>
#include <vector>

#include "primitives/tensor/partition.h"

namespace dlprim {

struct StepCost {
    double work = 0;     // as worth_of_threads() counts it (parallel.h)
    bool alone = false;  // beside no other step
    // No stretch goes over from earlier steps to this one: they may refuse what they are given, and
    // this is the first that changes what the caller has.
    bool begins = false;
    // Earlier steps that must have run. Those farther back than the longest stretch do not matter.
    std::vector<std::size_t> after = {};
};

// Steps that follow each other.
struct Stretch {
    std::vector<Range> branches = {};  // one behind the other, those of most work first
    double longest = 0;                // work of the first branch
    double work = 0;                   // of all

    Range steps() const { return {branches.front().begin, branches.back().end}; }
    // Whether to run branches side by side, or steps one after the other, each with all threads.
    bool pays(int threads) const;
};

struct BranchPlan {
    std::vector<std::size_t> order = {};  // of the steps, so that branches are contiguous
    std::vector<Stretch> stretches = {};  // from the first step to the last
};

inline constexpr std::size_t kLongestStretch = 128;

BranchPlan plan_branches(const std::vector<StepCost>& steps);

}  // namespace dlprim
