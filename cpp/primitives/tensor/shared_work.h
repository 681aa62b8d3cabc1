// The tasks of a loop while threads claim them: what a thread does that has come to a loop, whoever
// it belongs to, a worker of the team, a caller, a thread of the application, or none at all where
// a plan is priced. A task knows how many threads the loops inside it may use: a loop of fewer
// tasks than threads leaves the others to what is inside of its tasks.
#pragma once

#include <cstdint>
#include <exception>
#include <mutex>

#include "jit/pricing.h"
#include "primitives/tensor/claims.h"
#include "primitives/tensor/parallel.h"
#include "primitives/tensor/partition.h"

namespace dlprim {

// Inside of a task of a loop: how many threads the loops in it may use. 0 elsewhere.
int threads_in_task();

class SharedWork {
public:
    void begin(const SharedLoop& loop);

    // Runs tasks on `seat` while `goes_on`; returns whether some are left. Keeps the first
    // exception of a body, and leaves the tasks that nobody has.
    template <class GoesOn>
    bool claim(int seat, const GoesOn& goes_on) {
        bool left = true;
        while (left && goes_on()) left = claim_next(seat);
        return left;
    }

    int seats() const { return claims_.seats(); }

    // What the first failing body threw; null afterwards.
    std::exception_ptr take_failure();

private:
    bool claim_next(int seat);

    RangeBody body_ = {};
    std::int64_t tasks_ = 0;
    Claims claims_ = {};
    std::mutex failing_ = {};
    std::exception_ptr failure_ = {};
};

// Runs the loop on an application's threads, of which each claims tasks as a worker does.
void run_on(ThreadPool& pool, const SharedLoop& loop);

// Has the loop's tasks priced, as threads would claim them: who is free first takes the next ones.
void price_loop(Pricing& pricing, const SharedLoop& loop);

}  // namespace dlprim
