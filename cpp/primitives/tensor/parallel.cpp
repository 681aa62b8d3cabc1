#include "primitives/tensor/parallel.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <stdexcept>
#include <utility>

#include <time.h>

#include "jit/pricing.h"
#include "primitives/tensor/cpus.h"
#include "primitives/tensor/shared_work.h"
#include "primitives/tensor/team.h"

namespace dlprim {
namespace {

constexpr std::int64_t kLookEvery = 250'000'000;  // nanoseconds: CPUs may come and go

// Some twenty microseconds of one core each: operations, and bytes from its caches.
constexpr double kFlopsWorthThreads = 4e6;
constexpr double kBytesWorthThreads = 2e6;
thread_local bool works_alone = false;

std::atomic<int> of_process{0};  // what set_num_threads() said
thread_local int of_caller = 0;  // what set_threads_of_caller() said
std::atomic<ThreadPool*> applications{nullptr};

// Never destroyed: threads may be inside of calls while the process exits. A child of fork, which
// has none of the parent's threads, gets another one.
std::atomic<Team*> own_team{nullptr};
std::atomic<int> share{0};  // of the CPUs that the process may use, 0 until they are counted
std::atomic<std::int64_t> next_look{0};

[[maybe_unused]] const int watching_forks = pthread_atfork(nullptr, nullptr, [] {
    own_team = nullptr;
    forget_groups();
    share = 0;
    next_look = 0;
});

Team& team() {
    Team* made = own_team.load(std::memory_order_acquire);
    if (made != nullptr) return *made;
    auto* const mine = new Team(1);
    if (own_team.compare_exchange_strong(made, mine)) return *mine;
    delete mine;
    return *made;
}

std::int64_t now() {
    timespec time{};
    clock_gettime(CLOCK_MONOTONIC_COARSE, &time);
    return time.tv_sec * 1'000'000'000 + time.tv_nsec;
}

// Counts them again from time to time; of several callers one does.
int share_of_cpus() {
    std::int64_t due = next_look.load(std::memory_order_relaxed);
    const std::int64_t time = now();
    const int last = share.load(std::memory_order_relaxed);
    if (last > 0 && time < due) return last;
    if (!next_look.compare_exchange_strong(due, time + kLookEvery) && last > 0) return last;
    const UsableCpus cpus = usable_cpus();
    team().use(cpus.mask, cpus.count);
    share = cpus.share;
    return cpus.share;
}

// The first number of a list such as OMP_NUM_THREADS may be; 0 where it is none.
int number_in(const char* value) {
    char* end = nullptr;
    const long number = value == nullptr ? 0 : std::strtol(value, &end, 10);
    const bool is_number = end != value && (*end == '\0' || *end == ',' || *end == ' ');
    return is_number && number > 0 ? static_cast<int>(std::min<long>(number, kMostThreads)) : 0;
}

struct Said {
    int count = 0;
    const char* variable = "";
};

// By the environment. OMP_NUM_THREADS is others' too, who warn about what is wrong with it.
Said by_environment() {
    static const Said said = [] {
        const char* const ours = std::getenv("DLPRIM_NUM_THREADS");
        if (ours != nullptr && *ours != '\0') {
            const int count = number_in(ours);
            if (count == 0 || std::string(ours) != std::to_string(count)) {
                throw std::invalid_argument("environment variable DLPRIM_NUM_THREADS: '" +
                                            std::string(ours) + "' is not a number from 1 to " +
                                            std::to_string(kMostThreads));
            }
            return Said{count, "DLPRIM_NUM_THREADS"};
        }
        const int count = number_in(std::getenv("OMP_NUM_THREADS"));
        return count == 0 ? Said{} : Said{count, "OMP_NUM_THREADS"};
    }();
    return said;
}

}  // namespace

int num_threads() {
    if (works_alone) return 1;
    if (const int inside = threads_in_task(); inside > 0) return inside;
    if (const Pricing* const pricing = Pricing::current()) return pricing->threads();
    if (of_caller > 0) return of_caller;
    if (const ThreadPool* const pool = applications.load(std::memory_order_acquire)) {
        return std::clamp(pool->num_threads(), 1, kMostThreads);
    }
    if (const int set = of_process.load(std::memory_order_relaxed); set > 0) return set;
    const int said = by_environment().count;
    return said > 0 ? said : share_of_cpus();
}

std::string reason_for_num_threads() {
    if (of_caller > 0) return "set for this thread";
    if (applications != nullptr) return "the application's own threads";
    if (of_process > 0) return "set for the process";
    const Said said = by_environment();
    return said.count > 0 ? std::string("environment variable ") + said.variable
                          : reason_for(usable_cpus());
}

double worth_of_threads(double flops, double bytes) {
    return std::max(flops / kFlopsWorthThreads, bytes / kBytesWorthThreads);
}

WorkOf::WorkOf(double flops, double bytes) : before_(works_alone) {
    works_alone = before_ || worth_of_threads(flops, bytes) < 1;
}

WorkOf::~WorkOf() { works_alone = before_; }

void set_num_threads(int count) {
    if (count < 1 || count > kMostThreads) {
        throw std::invalid_argument("the number of threads is " + std::to_string(count) +
                                    ", expected 1 to " + std::to_string(kMostThreads));
    }
    of_process = count;
    of_caller = 0;
}

int set_threads_of_caller(int count) {
    return std::exchange(of_caller, std::clamp(count, 0, kMostThreads));
}

void use_thread_pool(ThreadPool* pool) { applications = pool; }

void run_loop(const SharedLoop& asked) {
    if (asked.tasks <= 0) return;
    SharedLoop loop = asked;
    const int inside = threads_in_task();
    ThreadPool* const pool = applications.load(std::memory_order_acquire);
    if (inside > 0) loop.seats = pool != nullptr ? 1 : std::min(loop.seats, inside);
    if (loop.tasks == 1 || loop.seats <= 1 || works_alone) {
        loop.body.call(loop.body.body, {0, loop.tasks}, 0);
        return;
    }
    if (Pricing* const pricing = Pricing::current()) return price_loop(*pricing, loop);
    share_of_cpus();
    pool != nullptr ? run_on(*pool, loop) : team().run(loop);
}

}  // namespace dlprim
