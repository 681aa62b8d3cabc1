#include "primitives/tensor/team.h"

#include <pthread.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <csignal>
#include <string>
#include <utility>

#include <linux/futex.h>
#include <sched.h>

#include "jit/verbose.h"
#include "primitives/tensor/shared_work.h"

namespace dlprim {
namespace {

using Clock = std::chrono::steady_clock;

// How long a worker looks for work before it sleeps: between the calls of a program in Python,
// where nobody else wants its core; else it sleeps soon, and so keeps its claim on a core that it
// shares with another program. Beside a busy core a network of small steps ran 0.71 times as fast
// as alone with 2 to 5 microseconds and 0.58 times with 20.
constexpr std::chrono::microseconds kWorkerLooks{50};
constexpr std::chrono::microseconds kSharedCoreLooks{5};
constexpr std::chrono::milliseconds kSharedFor{50};  // since the last sign of somebody else
// And how long a caller waits for workers before it yields.
constexpr std::chrono::microseconds kCallerLooks{20};

constexpr unsigned kPausesPerLook = 16;  // at the clock

void pause_briefly() { __builtin_ia32_pause(); }

// Sleeps while `word` is `value`; may return at any time.
void wait_on(const std::atomic<std::uint32_t>& word, std::uint32_t value) {
    syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, value, nullptr, nullptr, 0);
}

void wake_one_on(const std::atomic<std::uint32_t>& word) {
    syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

// How often the calling thread has lost its core to another one.
long times_preempted() {
    rusage usage{};
    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_nivcsw;
}

bool passed(Clock::time_point since, std::chrono::microseconds time) {
    return Clock::now() - since >= time;
}

// Blocks signals, which are the callers' to take; a thread inherits what is blocked when it starts.
class SignalsBlocked {
public:
    SignalsBlocked() {
        sigset_t all;
        sigfillset(&all);
        for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) sigdelset(&all, fault);
        pthread_sigmask(SIG_SETMASK, &all, &before_);
    }
    SignalsBlocked(const SignalsBlocked&) = delete;
    SignalsBlocked& operator=(const SignalsBlocked&) = delete;
    ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

private:
    sigset_t before_ = {};
};

}  // namespace

// Its word counts the threads inside, the caller among them. A worker that counted itself into a
// closed job leaves again without looking at anything else of it.
struct alignas(kCacheLineBytes) Team::Job {
    static constexpr std::uint32_t kClosed = 1U << 31;
    static constexpr std::uint32_t kCount = kClosed - 1;

    struct alignas(kCacheLineBytes) Seat {
        std::atomic<bool> taken{false};
    };

    std::atomic<std::uint32_t> inside{kClosed};
    SharedWork work;
    std::unique_ptr<Seat[]> seats;
    int room = 0;

    int take_seat(int preferred) {
        const int count = work.seats();
        for (int i = 0; i < count; ++i) {
            const int seat = (preferred + i) % count;
            auto& taken = seats[static_cast<std::size_t>(seat)].taken;
            if (!taken.load(std::memory_order_relaxed) &&
                !taken.exchange(true, std::memory_order_acquire)) {
                return seat;
            }
        }
        return -1;
    }

    void leave_seat(int seat) {
        seats[static_cast<std::size_t>(seat)].taken.store(false, std::memory_order_release);
    }

    void leave() { inside.fetch_sub(1, std::memory_order_release); }
};

struct alignas(kCacheLineBytes) Team::Worker {
    Team* team = nullptr;
    int index = 0;
    pthread_t thread = {};
    std::atomic<std::uint32_t> asleep{0};
    std::atomic<int> id{0};       // the kernel's, 0 until it runs
    std::atomic<int> avoids{-1};  // the core that its mask lacks while it sleeps
    long preempted = 0;           // times, until it looked for work last
    Clock::time_point preempted_at = {};

    bool shares_core() {
        const long times = times_preempted();
        const Clock::time_point now = Clock::now();
        if (std::exchange(preempted, times) != times) preempted_at = now;
        return now - preempted_at < kSharedFor;
    }
};

Team::Team(int threads)
    : threads_(threads),
      mask_(cpus_of_process()),
      jobs_(std::make_unique<Job[]>(kJobs)),
      workers_(std::make_unique<std::unique_ptr<Worker>[]>(kMostWorkers)) {}

Team::~Team() {
    ends_ = true;
    for (int i = 0; i < workers(); ++i) {
        Worker& worker = *workers_[static_cast<std::size_t>(i)];
        worker.asleep.store(0);
        wake_one_on(worker.asleep);
        pthread_join(worker.thread, nullptr);
    }
}

void Team::use(const CpuMask& cpus, int threads) {
    const std::lock_guard lock(masking_);
    threads_.store(threads, std::memory_order_relaxed);
    most_workers_ = kMostWorkers;
    if (cpus == mask_) return;
    mask_ = cpus;
    for (int i = 0; i < workers(); ++i) {
        Worker& worker = *workers_[static_cast<std::size_t>(i)];
        if (worker.id != 0) set_cpus_of_thread(worker.id, mask_);
        worker.avoids.store(-1, std::memory_order_relaxed);
    }
}

std::uint64_t Team::bit_of(const Job& job) const {
    return std::uint64_t{1} << (&job - jobs_.get());
}

// Callers compute too.
int Team::allowed_workers() const {
    const int callers = callers_.load(std::memory_order_relaxed);
    return threads_.load(std::memory_order_relaxed) - std::max(callers, 1);
}

// ---------------------------------------------------------------- the caller

void Team::run(const SharedLoop& loop) {
    std::uint64_t seen = taken_.load(std::memory_order_relaxed);
    int free = 0;
    do {
        free = std::countr_one(seen);
        if (free == kJobs) return loop.body.call(loop.body.body, {0, loop.tasks}, 0);
    } while (!taken_.compare_exchange_weak(seen, seen | std::uint64_t{1} << free,
                                           std::memory_order_acquire));
    Job& job = jobs_[static_cast<std::size_t>(free)];
    const int caller = threads_in_task() == 0 ? 1 : 0;  // inside of a task it is counted already
    callers_.fetch_add(caller, std::memory_order_relaxed);
    std::exception_ptr failure;
    try {
        prepare(job, loop);
        post(job, loop);
        work(job, 0, nullptr);
        finish(job);
        failure = job.work.take_failure();
    } catch (...) {  // of prepare(): there is no memory
        failure = std::current_exception();
    }
    callers_.fetch_sub(caller, std::memory_order_relaxed);
    taken_.fetch_and(~bit_of(job), std::memory_order_release);
    // A worker that made room for this caller, and sleeps, may go on with another caller's loop.
    if (caller == 1 && open_.load() != 0 && sleeping_.load() > 0) wake(1, allowed_workers());
    if (failure) std::rethrow_exception(failure);
}

// All that may throw, while nobody else looks at the job.
void Team::prepare(Job& job, const SharedLoop& loop) {
    if (loop.seats > job.room) {
        job.seats = std::make_unique<Job::Seat[]>(static_cast<std::size_t>(loop.seats));
        job.room = loop.seats;
    }
    job.work.begin(loop);
    const int wanted = std::min({loop.seats - 1, allowed_workers(), most_workers_.load()});
    if (wanted > workers()) start_workers(wanted);
}

void Team::post(Job& job, const SharedLoop& loop) {
    job.seats[0].taken.store(true, std::memory_order_relaxed);
    job.inside.fetch_add(1, std::memory_order_relaxed);
    job.inside.fetch_and(~Job::kClosed, std::memory_order_release);
    open_.fetch_or(bit_of(job));
    posts_.fetch_add(1);
    const int allowed = allowed_workers();
    if (allowed <= 0 || sleeping_.load() == 0) return;
    const auto helpers = static_cast<int>(std::min<std::int64_t>(loop.seats - 1, loop.tasks - 1));
    // The first workers are those of a caller's loop; inside of a task they are in the loop around.
    wake(helpers, threads_in_task() == 0 ? std::min(helpers, allowed) : allowed);
}

// The caller closes the job and waits for those inside. One of them may have lost its core, so it
// soon gives up its own time. It does not sleep: Linux would wake it on the core of the last worker
// and leave both there, the worker awake but not running, for milliseconds.
void Team::finish(Job& job) {
    open_.fetch_and(~bit_of(job), std::memory_order_relaxed);
    job.leave_seat(0);
    job.leave();
    job.inside.fetch_or(Job::kClosed, std::memory_order_acq_rel);
    const Clock::time_point since = Clock::now();
    for (unsigned i = 1; (job.inside.load(std::memory_order_acquire) & Job::kCount) != 0; ++i) {
        if (i % kPausesPerLook == 0 && passed(since, kCallerLooks)) {
            sched_yield();
        } else {
            pause_briefly();
        }
    }
}

void Team::work(Job& job, int seat, const Worker* me) {
    const bool left =
        job.work.claim(seat, [&] { return me == nullptr || me->index < allowed_workers(); });
    if (!left) open_.fetch_and(~bit_of(job), std::memory_order_relaxed);
}

// ---------------------------------------------------------------- workers

void Team::start_workers(int wanted) {
    const std::lock_guard lock(starting_);
    const SignalsBlocked signals;
    for (int i = workers(); i < wanted; ++i) {
        auto worker = std::make_unique<Worker>();
        worker->team = this;
        worker->index = i;
        const std::string name = "dlprim-" + std::to_string(i + 1);
        const auto serving = [](void* it) -> void* {
            auto* const me = static_cast<Worker*>(it);
            me->team->serve(*me);
            return nullptr;
        };
        if (pthread_create(&worker->thread, nullptr, serving, worker.get()) != 0) {
            most_workers_ = i;  // until use() tries again
            static std::once_flag once;
            std::call_once(once, [&] {
                report("the system refuses thread " + std::to_string(i + 2) +
                       " of this process's team: it goes on with " + std::to_string(i + 1));
            });
            return;
        }
        pthread_setname_np(worker->thread, name.c_str());
        workers_[static_cast<std::size_t>(i)] = std::move(worker);
        started_.store(i + 1, std::memory_order_release);
    }
}

// Wakes up to `wanted` workers that sleep among the first ones, on another core than this one.
void Team::wake(int wanted, int among) {
    const int here = sched_getcpu();
    last_caller_cpu_.store(here, std::memory_order_relaxed);
    const int last = std::min(among, started_.load(std::memory_order_acquire));
    for (int i = 0; i < last && wanted > 0; ++i) {
        Worker& worker = *workers_[static_cast<std::size_t>(i)];
        std::uint32_t asleep = 1;
        if (!worker.asleep.load(std::memory_order_relaxed) ||
            !worker.asleep.compare_exchange_strong(asleep, 0)) {
            continue;
        }
        --wanted;
        sleeping_.fetch_sub(1);
        // A worker that has lost its core may hold the lock; it is not waited for.
        const std::unique_lock lock(masking_, std::try_to_lock);
        if (lock && worker.avoids.load(std::memory_order_relaxed) != here) {
            set_cpus_of_thread(worker.id.load(), without(mask_, here));
            worker.avoids.store(here, std::memory_order_relaxed);
        }
        wake_one_on(worker.asleep);
    }
}

void Team::serve(Worker& me) {
    me.id.store(static_cast<int>(syscall(SYS_gettid)));
    adopt_mask(me);  // in place of that of the caller who started it
    std::uint32_t posts = 0;
    while (!ends_) {
        if (!look_for_work(me, posts)) sleep(me, posts);
    }
}

// Whether there was any. `posts`: how many jobs there had been when it looked last.
bool Team::look_for_work(Worker& me, std::uint32_t& posts) {
    const Clock::time_point since = Clock::now();
    bool is_new = true;
    for (unsigned i = 1;; ++i) {
        posts = posts_.load();
        std::uint64_t open = open_.load();
        if (open != 0 && me.index < allowed_workers()) {
            // Workers spread over the jobs.
            open = std::rotr(open, me.index);
            for (; open != 0; open &= open - 1) {
                const int job = (std::countr_zero(open) + me.index) % kJobs;
                if (help(jobs_[static_cast<std::size_t>(job)], me)) return true;
            }
        }
        if (me.avoids.load(std::memory_order_relaxed) >= 0) adopt_mask(me);
        pause_briefly();
        if (i % kPausesPerLook != 0) continue;
        if (me.index >= allowed_workers() || passed(since, kWorkerLooks)) return false;
        if (is_new && passed(since, kSharedCoreLooks)) {
            if (me.shares_core()) return false;
            is_new = false;
        }
    }
}

bool Team::help(Job& job, Worker& me) {
    const std::uint32_t before = job.inside.fetch_add(1, std::memory_order_acquire);
    int seat = -1;
    if ((before & Job::kClosed) == 0) {
        seat = job.take_seat(me.index + 1);
        if (seat >= 0) {
            work(job, seat, &me);
            job.leave_seat(seat);
        }
    }
    job.leave();
    return seat >= 0;
}

// Unless a job was posted that it has not looked at.
void Team::sleep(Worker& me, std::uint32_t posts) {
    const int caller = last_caller_cpu_.load(std::memory_order_relaxed);
    if (caller >= 0 && me.avoids.load(std::memory_order_relaxed) != caller) {
        const std::lock_guard lock(masking_);
        set_cpus_of_thread(0, without(mask_, caller));
        me.avoids.store(caller, std::memory_order_relaxed);
    }
    me.asleep.store(1);
    sleeping_.fetch_add(1);
    std::uint32_t asleep = 1;
    if ((posts_.load() != posts || ends_) && me.asleep.compare_exchange_strong(asleep, 0)) {
        sleeping_.fetch_sub(1);
    } else {
        while (me.asleep.load(std::memory_order_acquire) != 0) wait_on(me.asleep, 1);
    }
}

// Woken where the waker was not, a worker may go wherever the process may.
void Team::adopt_mask(Worker& me) {
    const std::lock_guard lock(masking_);
    me.avoids.store(-1, std::memory_order_relaxed);
    set_cpus_of_thread(0, mask_);
}

}  // namespace dlprim
