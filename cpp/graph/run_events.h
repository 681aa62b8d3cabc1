// Which arrays of a run are final while it still runs. Whoever passes gradients on wants each of
// them when the last step that reads or writes it has run, not when all have; polling would take a
// core from the steps, and a callback would run on their threads. So a run counts down the steps
// that use each array, from any thread, and wakes those who wait: where nobody does, a step costs
// one atomic subtraction for each array it uses, and a run without events nothing at all.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <vector>

namespace dlprim {

class RunEvents {
public:
    enum class Outcome { final, abandoned, late };

    // Of one run. `uses`: how many steps use each of its arrays; those of none are final. Throws
    // std::invalid_argument where there was one before.
    void begin(const std::vector<int>& uses);
    // One of the steps that use an array has run.
    void used(std::size_t array);
    // There is no run any more, or never will be: what is not final then never becomes it.
    void end();

    // Returns when the array is final, or the limit has passed, or there is nothing to wait for;
    // from any thread, before the run too. Throws std::invalid_argument where the run has no such
    // array.
    Outcome wait(std::size_t array, std::chrono::nanoseconds limit);

private:
    bool is_final(std::size_t array) const;

    std::mutex mutex_ = {};
    std::condition_variable changed_ = {};
    std::atomic<int> waiting_ = 0;  // who waits
    // Written with the mutex.
    std::atomic<bool> has_begun_ = false;
    bool has_ended_ = false;
    std::vector<std::atomic<int>> left_ = {};  // steps that have not run
};

}  // namespace dlprim
