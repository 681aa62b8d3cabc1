#include "primitives/tensor/shared_work.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace dlprim {
namespace {

// Of the task that this thread is in: threads that loops inside it may use; 0 outside of tasks.
thread_local int inside_threads = 0;

// Sets it for one task.
class InsideTask {
public:
    InsideTask(std::int64_t task, std::int64_t tasks, int threads)
        : before_(std::exchange(inside_threads, threads_of(task, tasks, threads))) {}
    InsideTask(const InsideTask&) = delete;
    InsideTask& operator=(const InsideTask&) = delete;
    ~InsideTask() { inside_threads = before_; }

private:
    static int threads_of(std::int64_t task, std::int64_t tasks, int threads) {
        if (tasks >= threads) return 1;
        return static_cast<int>(threads / tasks + (task < threads % tasks ? 1 : 0));
    }

    int before_;
};

}  // namespace

int threads_in_task() { return inside_threads; }

void SharedWork::begin(const SharedLoop& loop) {
    body_ = loop.body;
    tasks_ = loop.tasks;
    claims_.reset(loop.tasks, loop.seats, loop.order);
}

bool SharedWork::claim_next(int seat) {
    const Range range = claims_.next(seat);
    if (range.size() == 0) return false;
    try {
        const InsideTask inside(range.begin, tasks_, seats());
        body_.call(body_.body, range, seat);
        return true;
    } catch (...) {
        const std::lock_guard lock(failing_);
        if (!failure_) failure_ = std::current_exception();
        claims_.clear();
        return false;
    }
}

std::exception_ptr SharedWork::take_failure() { return std::exchange(failure_, nullptr); }

void run_on(ThreadPool& pool, const SharedLoop& loop) {
    SharedWork work;
    work.begin(loop);
    const auto on_seat = [](void* it, int seat) {
        static_cast<SharedWork*>(it)->claim(seat, [] { return true; });
    };
    const auto threads = static_cast<int>(std::min<std::int64_t>(loop.seats, loop.tasks));
    pool.run(threads, on_seat, &work);
    if (const std::exception_ptr failure = work.take_failure()) std::rethrow_exception(failure);
}

void price_loop(Pricing& pricing, const SharedLoop& loop) {
    Claims claims;
    claims.reset(loop.tasks, loop.seats, loop.order);
    std::vector<double> busy(static_cast<std::size_t>(loop.seats));
    for (;;) {
        const auto first = std::min_element(busy.begin(), busy.end());
        const auto seat = static_cast<int>(first - busy.begin());
        const Range range = claims.next(seat);
        if (range.size() == 0) break;  // for all of them
        const InsideTask inside(range.begin, loop.tasks, loop.seats);
        *first += pricing.cycles_of([&] { loop.body.call(loop.body.body, range, seat); });
    }
    pricing.add_loop(loop.tasks, *std::max_element(busy.begin(), busy.end()));
}

}  // namespace dlprim
