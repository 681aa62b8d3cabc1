// Where the temporaries of a network lie in one piece of memory: those that are needed at different
// times share it, and what branches need that run side by side is needed at the same time. A pure
// function of lifetimes and sizes, so that it can be tested without a network, and checked by code
// that knows nothing of how it was made.
#pragma once

#include <cstdint>
#include <vector>

#include "primitives/tensor/partition.h"

namespace dlprim {

// A branch, whose steps may run beside those of all other branches of its stretch.
struct BranchOf {
    std::int64_t number = -1;  // its own; -1 outside of stretches
    Range stretch = {};        // of steps

    bool is_none() const { return number < 0; }
};

// Of a buffer: the steps that use it first and last, and its size. None where it has no bytes or is
// never used.
struct Lifetime {
    std::int64_t first = 0;
    std::int64_t last = -1;
    std::int64_t bytes = 0;
    // Where these steps are in a branch: to those of other branches it is needed throughout the
    // stretch. What several branches of one use is needed throughout it to all.
    BranchOf first_in = {};
    BranchOf last_in = {};

    // Steps come in their order.
    void use(std::int64_t step, const BranchOf& branch);

    bool is_needed() const { return bytes > 0 && last >= first; }
    // To all steps.
    std::int64_t begin() const { return first_in.is_none() ? first : first_in.stretch.begin; }
    std::int64_t end() const { return last_in.is_none() ? last + 1 : last_in.stretch.end; }
    bool precedes(const Lifetime& other) const {
        const bool in_one_branch =
            !last_in.is_none() && last_in.number == other.first_in.number && last < other.first;
        return in_one_branch || end() <= other.begin();
    }
    bool overlaps(const Lifetime& other) const {
        return !precedes(other) && !other.precedes(*this);
    }
};

struct BufferPlan {
    std::vector<std::int64_t> offsets = {};  // of the buffers, each on a cache line
    std::int64_t bytes = 0;                  // in all
};

BufferPlan plan_buffers(const std::vector<Lifetime>& buffers);

// The most bytes that steps need which may run at one time, each buffer in whole cache lines: no
// plan has less.
std::int64_t largest_live_set(const std::vector<Lifetime>& buffers);

// Throws std::logic_error where two buffers that are needed at a time share memory, or one lies
// outside of the plan or on no cache line.
void require_valid(const BufferPlan& plan, const std::vector<Lifetime>& buffers);

}  // namespace dlprim
