#include "primitives/tensor/parallel.h"

#include <omp.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <string>

#include "primitives/tensor/partition.h"

namespace dlprim {
namespace {

// The latest set_num_threads, as (generation << 32 | count). OpenMP keeps its thread count per
// calling thread, so each thread adopts a new generation once and then follows OpenMP again.
std::atomic<std::uint64_t> requested{0};
thread_local std::uint64_t adopted = 0;

// Some twenty microseconds of one core each: operations, and bytes from its caches.
constexpr double kFlopsWorthThreads = 4e6;
constexpr double kBytesWorthThreads = 2e6;
thread_local bool works_alone = false;

std::atomic<bool> team_started{false};
std::atomic<bool> forked_with_team{false};

void after_fork_in_child() {
    if (team_started) forked_with_team = true;
}

[[maybe_unused]] const int watching_forks = pthread_atfork(nullptr, nullptr, after_fork_in_child);

void run_range(Range range, TaskBody body, TaskOrder order) {
    if (order == TaskOrder::descending) {
        for (std::int64_t task = range.end; task-- > range.begin;) body.call(body.body, task);
        return;
    }
    for (std::int64_t task = range.begin; task < range.end; ++task) body.call(body.body, task);
}

}  // namespace

int num_threads() {
    if (forked_with_team || works_alone || omp_in_parallel()) return 1;
    const std::uint64_t latest = requested.load();
    if (latest != adopted) {
        adopted = latest;
        omp_set_num_threads(static_cast<int>(latest & 0xffffffff));
    }
    return omp_get_max_threads();
}

double worth_of_threads(double flops, double bytes) {
    return std::max(flops / kFlopsWorthThreads, bytes / kBytesWorthThreads);
}

WorkOf::WorkOf(double flops, double bytes) : before_(works_alone) {
    works_alone = before_ || worth_of_threads(flops, bytes) < 1;
}

WorkOf::~WorkOf() { works_alone = before_; }

void set_num_threads(int count) {
    if (count < 1) {
        throw std::invalid_argument("the number of threads is " + std::to_string(count) +
                                    ", expected at least 1");
    }
    if (forked_with_team && count > 1) {
        throw std::runtime_error(
            "this process was forked after dlprim had started threads and can only compute "
            "serially; start it with spawn or forkserver to use threads");
    }
    std::uint64_t before = requested.load();
    std::uint64_t after = 0;
    do {
        after = (((before >> 32) + 1) << 32) | static_cast<std::uint32_t>(count);
    } while (!requested.compare_exchange_weak(before, after));
    num_threads();  // adopted here and now, so that a later limit of this thread (threadpoolctl)
                    // holds
}

void run_tasks(std::int64_t tasks, TaskBody body, TaskOrder order) {
    const int threads = num_threads();
    if (threads <= 1 || tasks <= 1 || omp_in_parallel()) {
        run_range({0, tasks}, body, order);
        return;
    }
    team_started = true;
    std::exception_ptr failure;
    std::mutex failure_mutex;
// Always the full team, also for fewer tasks: OpenMP ends the threads of a team that shrinks.
#pragma omp parallel num_threads(threads)
    try {
        run_range(chunk(tasks, omp_get_num_threads(), omp_get_thread_num()), body, order);
    } catch (...) {
        const std::lock_guard lock(failure_mutex);
        if (!failure) failure = std::current_exception();
    }
    if (failure) std::rethrow_exception(failure);
}

}  // namespace dlprim
