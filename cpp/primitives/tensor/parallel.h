// Threads, in one place: the only file besides its .cpp that may know how they are made. A loop
// over tasks is cut into one contiguous chunk per thread. Tasks must not depend on each other and
// must not depend on the number of threads, so that results are the same bits for any number.
#pragma once

#include <cstdint>

namespace dlprim {

// Threads that the next parallel_for of this thread uses; 1 within a task. Starts from
// OMP_NUM_THREADS and follows whoever sets OpenMP's thread count of the calling thread
// (threadpoolctl does).
int num_threads();

// Sets the number for every thread of the process. Throws std::invalid_argument when count < 1,
// and std::runtime_error for count > 1 in a child process forked after threads had started:
// the OpenMP runtime would wait there for threads that do not exist. (Teams that other users of the
// same OpenMP runtime started before a fork are not known here.)
void set_num_threads(int count);

// Work in units of the least that earns threads: starting them takes some microseconds where they
// spin, and fifty where they sleep.
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

// A body without its type: where it is, and what calls it.
struct TaskBody {
    const void* body = nullptr;
    void (*call)(const void* body, std::int64_t task) = nullptr;
};

// The way of each thread through its own tasks.
enum class TaskOrder : std::uint8_t { ascending, descending };

void run_tasks(std::int64_t tasks, TaskBody body, TaskOrder order);

// Calls body(task) for every task in [0, tasks). The first exception of a body is rethrown here
// after all threads have stopped; which tasks then have run is unspecified. Allocates nothing.
// A task is the same thread's whatever the order: a loop that descends behind one that ascended
// finds what that one touched last in its own core's caches.
template <class Body>
void parallel_for(std::int64_t tasks, const Body& body, TaskOrder order = TaskOrder::ascending) {
    run_tasks(
        tasks,
        {&body, [](const void* it, std::int64_t task) { (*static_cast<const Body*>(it))(task); }},
        order);
}

}  // namespace dlprim
