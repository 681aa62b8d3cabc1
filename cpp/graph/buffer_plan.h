// Where the temporaries of a network lie in one piece of memory: those that are needed at different
// times share it. A pure function of lifetimes and sizes, so that it can be tested without a
// network, and checked by code that knows nothing of how it was made.
#pragma once

#include <cstdint>
#include <vector>

namespace dlprim {

// Of a buffer: the steps that use it first and last, and its size. None where it has no bytes or is
// never used.
struct Lifetime {
    std::int64_t first = 0;
    std::int64_t last = -1;
    std::int64_t bytes = 0;

    bool is_needed() const { return bytes > 0 && last >= first; }
    bool overlaps(const Lifetime& other) const {
        return first <= other.last && other.first <= last;
    }
};

struct BufferPlan {
    std::vector<std::int64_t> offsets = {};  // of the buffers, each on a cache line
    std::int64_t bytes = 0;                  // in all
};

BufferPlan plan_buffers(const std::vector<Lifetime>& buffers);

// The most bytes that are needed by any one step, each buffer in whole cache lines: no plan has
// less.
std::int64_t largest_live_set(const std::vector<Lifetime>& buffers);

// Throws std::logic_error where two buffers that are needed at a time share memory, or one lies
// outside of the plan or on no cache line.
void require_valid(const BufferPlan& plan, const std::vector<Lifetime>& buffers);

}  // namespace dlprim
