// What the threads of a process have to survive for hours, run by .ci/long: loops without end, from
// callers that come and go, with exceptions, inside of each other, forks, and masks that change.
// Ends with 0, or says what was wrong.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <thread>
#include <vector>

#include "primitives/tensor/cpus.h"
#include "primitives/tensor/parallel.h"

namespace dlprim {
namespace {

std::atomic<std::int64_t> wrong{0};

void require(bool holds) {
    if (!holds) ++wrong;
}

void loop_once(std::int64_t tasks) {
    std::atomic<std::int64_t> sum = 0;
    parallel_for(tasks, [&](std::int64_t task) { sum += task + 1; });
    require(sum == tasks * (tasks + 1) / 2);
}

void loop_inside_loop() {
    std::atomic<int> inner = 0;
    parallel_for(2, [&](std::int64_t) { parallel_for(8, [&](std::int64_t) { ++inner; }); });
    require(inner == 16);
}

void failing_loop() {
    try {
        parallel_for(20, [](std::int64_t task) {
            if (task == 7) throw std::runtime_error("7");
        });
        require(false);
    } catch (const std::runtime_error&) {
    }
}

void mixed_loops(unsigned seed) {
    for (unsigned i = 0; i < 20; ++i) {
        const unsigned kind = (seed * 2654435761U + i * 40503U) >> 16 & 7;
        if (kind == 0) {
            failing_loop();
        } else if (kind == 1) {
            loop_inside_loop();
        } else {
            loop_once(1 + (seed + i) % 40);
        }
    }
}

void empty_jobs(std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) parallel_for(2, [](std::int64_t) {});
}

void callers(std::int64_t count) {
    constexpr unsigned kAtOnce = 8;
    for (std::int64_t begin = 0; begin < count; begin += kAtOnce) {
        std::vector<std::jthread> here;
        for (unsigned i = 0; i < kAtOnce; ++i) {
            here.emplace_back([=] { mixed_loops(static_cast<unsigned>(begin) + i); });
        }
    }
}

// While other threads loop and look for the CPUs that there are.
void forks(int count) {
    std::atomic<bool> done = false;
    std::vector<std::jthread> beside;
    for (int i = 0; i < 3; ++i) {
        beside.emplace_back([&] {
            while (!done) {
                mixed_loops(1);
                usable_cpus();
            }
        });
    }
    for (int i = 0; i < count; ++i) {
        const pid_t child = fork();
        if (child == 0) {
            alarm(60);
            usable_cpus();
            mixed_loops(static_cast<unsigned>(i));
            _exit(wrong == 0 ? 0 : 1);
        }
        int status = 0;
        waitpid(child, &status, 0);
        require(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    done = true;
}

void changing_masks(double seconds) {
    const CpuMask all = cpus_of_process();
    std::atomic<bool> done = false;
    const std::jthread beside([&] {
        while (!done) mixed_loops(3);
    });
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    for (int i = 0; std::chrono::steady_clock::now() < end; ++i) {
        set_cpus_of_thread(getpid(), i % 2 == 0 ? without(all, 0) : all);
        std::this_thread::sleep_for(std::chrono::milliseconds(150));
    }
    set_cpus_of_thread(getpid(), all);
    done = true;
}

}  // namespace
}  // namespace dlprim

int main(int count, char** arguments) {
    const double share = count > 1 ? std::atof(arguments[1]) : 1;  // of what .ci/long runs
    const auto of = [&](double all) { return static_cast<std::int64_t>(share * all) + 1; };
    for (const int threads : {2, 4}) {
        dlprim::set_num_threads(threads);
        dlprim::empty_jobs(of(5e7));
        dlprim::callers(of(1e4));
        dlprim::forks(static_cast<int>(of(200)));
        dlprim::changing_masks(share * 60);
    }
    std::printf("%lld wrong\n", static_cast<long long>(dlprim::wrong));
    return dlprim::wrong == 0 ? 0 : 1;
}
