// The threads of this process: one team for all that call, so that two callers share the cores
// instead of doubling the threads. A caller posts its loop, works on it itself, and waits for those
// alone who are inside; who sleeps still, or has lost its core before it has come, is not waited
// for. A worker without work looks for some microseconds, as the next loop of a network comes soon,
// and then sleeps, so that a neighbour has the core. Linux wakes a thread on the core of the one
// who wakes it and leaves both there for milliseconds: a worker therefore sleeps with a mask that
// lacks its caller's core, and a caller does not sleep.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include "primitives/tensor/claims.h"
#include "primitives/tensor/cpus.h"
#include "primitives/tensor/parallel.h"
#include "primitives/tensor/partition.h"

namespace dlprim {

class Team {
public:
    // At most so many threads compute at once, callers among them. Starts none yet.
    explicit Team(int threads);
    Team(const Team&) = delete;
    Team& operator=(const Team&) = delete;
    // No thread may be inside run(). Waits for the workers to end.
    ~Team();

    // Runs all tasks; afterwards rethrows the first exception of a body. Which tasks then have run
    // is unspecified. May be called inside of a task, too: threads that the loop around it has no
    // tasks for come to this one. Of more callers at once than kJobs the last ones compute alone.
    void run(const SharedLoop& loop);

    // Follows the CPUs that the process may use.
    void use(const CpuMask& cpus, int threads);

    int workers() const { return started_.load(std::memory_order_acquire); }

private:
    static constexpr int kJobs = 64;
    static constexpr int kMostWorkers = 1023;

    struct Job;
    struct Worker;

    int allowed_workers() const;
    void prepare(Job& job, const SharedLoop& loop);
    void start_workers(int wanted);
    void post(Job& job, const SharedLoop& loop);
    void finish(Job& job);
    void wake(int wanted, int among);
    void work(Job& job, int seat, const Worker* me);
    bool help(Job& job, Worker& me);
    void serve(Worker& me);
    bool look_for_work(Worker& me, std::uint32_t& posts);
    void sleep(Worker& me, std::uint32_t posts);
    void adopt_mask(Worker& me);

    std::uint64_t bit_of(const Job& job) const;

    // What idle workers look at.
    alignas(kCacheLineBytes) std::atomic<std::uint64_t> open_{0};   // jobs with tasks to claim
    std::atomic<std::uint32_t> posts_{0};                           // so far
    std::atomic<int> callers_{0};                                   // threads outside of any task
    alignas(kCacheLineBytes) std::atomic<std::uint64_t> taken_{0};  // jobs that a thread has posted
    alignas(kCacheLineBytes) std::atomic<int> threads_;
    std::atomic<int> started_{0};
    std::atomic<int> most_workers_{kMostWorkers};  // fewer where the system has refused one
    std::atomic<int> sleeping_{0};
    std::atomic<bool> ends_{false};
    std::atomic<int> last_caller_cpu_{-1};
    std::mutex starting_;
    std::mutex masking_;
    CpuMask mask_;
    std::unique_ptr<Job[]> jobs_;
    std::unique_ptr<std::unique_ptr<Worker>[]> workers_;
};

}  // namespace dlprim
