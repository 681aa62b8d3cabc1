// What a run would take on threads that are not there. While one of these lives on a thread,
// kernels that this thread calls add their price to it and compute nothing, and a loop whose tasks
// threads share deals its tasks to as many as are asked for, by the claims that a run makes. So the
// plan of anything is priced by walking it, and a plan whose parts are too few, or unequal, is seen
// without the cores. Everything else runs as always: arrays have to be there, and what is written
// meanwhile, or made once and kept, holds nothing.
#pragma once

#include <atomic>
#include <cstdint>

namespace dlprim {

class Pricing {
public:
    // Of a loop that more than one thread shares: to begin it and to end it, 5 microseconds; 1
    // where threads still look for work that were in another one a moment ago
    // (team.cpp).
    static constexpr double kCyclesPerLoop = 15e3;
    static constexpr double kCyclesPerNextLoop = 3e3;

    explicit Pricing(int threads);
    Pricing(const Pricing&) = delete;
    Pricing& operator=(const Pricing&) = delete;
    ~Pricing();

    // That of this thread, or null.
    static Pricing* current() {
        return alive.load(std::memory_order_relaxed) == 0 ? nullptr : of_thread;
    }

    void add(double cycles) {
        elapsed_ += cycles;
        work_ += cycles;
    }

    // For a loop, whose threads all begin at the present time: the cycles of one part, which leave
    // that time as it is; then, once for all of them, those of the thread that took longest.
    template <class Body>
    double cycles_of(const Body& body) {
        const double before = elapsed_;
        body();
        const double took = elapsed_ - before;
        elapsed_ = before;
        return took;
    }
    void add_loop(std::int64_t tasks, double longest) {
        const bool awake = loops_ > 0 && elapsed_ - last_loop_ <= kCyclesPerLoop;
        elapsed_ += longest + (awake ? kCyclesPerNextLoop : kCyclesPerLoop);
        last_loop_ = elapsed_;
        ++loops_;
        tasks_ += tasks;
    }

    int threads() const { return threads_; }
    double elapsed() const { return elapsed_; }  // cycles on so many threads
    double work() const { return work_; }        // on one
    std::int64_t loops() const { return loops_; }
    std::int64_t tasks() const { return tasks_; }  // of all loops

private:
    static inline std::atomic<int> alive{0};
    static thread_local Pricing* of_thread;

    int threads_;
    Pricing* before_;
    double elapsed_ = 0;
    double work_ = 0;
    double last_loop_ = 0;  // when it ended
    std::int64_t loops_ = 0;
    std::int64_t tasks_ = 0;
};

}  // namespace dlprim
