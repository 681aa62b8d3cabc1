// Threads, as everything else sees them: how many there are, and loops whose tasks they share.
// Tasks must not depend on each other, on the number of threads, or on who takes them when, so that
// results are the same bits for any number of threads and any order of claims (claims.h).
#pragma once

#include <cstdint>
#include <string>

#include "primitives/tensor/claims.h"
#include "primitives/tensor/partition.h"

namespace dlprim {

// Threads that the next loop of this thread may use. Within a task of a loop that has as many tasks
// as threads it is 1, else the threads that the loop has no tasks for share it. It may change
// between two calls, with the CPUs that the process may use: who sizes scratch by it reads it once.
int num_threads();

// What the number comes from, for people.
std::string reason_for_num_threads();

inline constexpr int kMostThreads = 1024;

// Sets the number for every thread of the process, and for the calling one in place of its own.
// No more run at once than there are CPUs that the process may use. Throws std::invalid_argument
// unless it is from 1 to 1024.
void set_num_threads(int count);

// The number for the calling thread alone, at most 1024, 0 for that of the process. Returns what
// held before.
int set_threads_of_caller(int count);

// Work in units of the least that earns threads: a loop's start takes some microseconds.
double worth_of_threads(double flops, double bytes);

// While one of these lives, its thread uses no others for work that is not worth them.
class WorkOf {
public:
    WorkOf(double flops, double bytes);
    WorkOf(const WorkOf&) = delete;
    WorkOf& operator=(const WorkOf&) = delete;
    ~WorkOf();

private:
    bool before_;
};

// Threads of an application, to compute on in place of this library's.
class ThreadPool {
public:
    virtual ~ThreadPool() = default;
    virtual int num_threads() const = 0;
    // Calls work(argument, i) for every i in [0, count), each in any thread, and returns when all
    // have returned. They wait for nothing, so that they may run one after the other, too. May be
    // called by several threads at once.
    virtual void run(int count, void (*work)(void* argument, int i), void* argument) = 0;
};

// From here on, until it is called with null; not while a loop runs. The pool outlives its use.
void use_thread_pool(ThreadPool* pool);

// A body without its type: where it is, and what calls it for tasks, on a seat of the loop.
struct RangeBody {
    const void* body = nullptr;
    void (*call)(const void* body, Range tasks, int seat) = nullptr;
};

struct SharedLoop {
    std::int64_t tasks = 0;
    int seats = 1;  // most threads at once
    TaskOrder order = TaskOrder::ascending;
    RangeBody body = {};
};

void run_loop(const SharedLoop& loop);

// Calls body(range, seat) until every task in [0, tasks) was in a range: neighbouring tasks, one
// range after the other on each of at most `threads` threads. No two threads are on one seat, in
// [0, threads), at a time: what a thread needs of its own is kept by seat. The first exception of a
// body is rethrown here after all threads have stopped; which tasks then have run is unspecified.
template <class Body>
void parallel_ranges(std::int64_t tasks, int threads, const Body& body) {
    run_loop({.tasks = tasks,
              .seats = threads,
              .body = {&body, [](const void* it, Range range, int seat) {
                           (*static_cast<const Body*>(it))(range, seat);
                       }}});
}

// Calls body(task) for every task in [0, tasks), in the given order on each thread. A task is the
// same thread's whatever the order: a loop that descends behind one that ascended finds what that
// one touched last in its own core's caches.
template <class Body>
void parallel_for(std::int64_t tasks, const Body& body, TaskOrder order = TaskOrder::ascending) {
    const auto each = [&body, order](Range range) {
        if (order == TaskOrder::descending) {
            for (std::int64_t task = range.end; task-- > range.begin;) body(task);
            return;
        }
        for (std::int64_t task = range.begin; task < range.end; ++task) body(task);
    };
    run_loop({.tasks = tasks,
              .seats = num_threads(),
              .order = order,
              .body = {&each, [](const void* it, Range range, int) {
                           (*static_cast<const decltype(each)*>(it))(range);
                       }}});
}

}  // namespace dlprim
