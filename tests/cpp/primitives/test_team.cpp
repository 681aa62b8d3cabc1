#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <ostream>
#include <set>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "primitives/tensor/shared_work.h"
#include "primitives/tensor/team.h"

namespace dlprim {
namespace {

template <class Body>
void run(Team& team, std::int64_t tasks, int seats, const Body& body) {
    team.run(
        {.tasks = tasks, .seats = seats, .body = {&body, [](const void* it, Range range, int seat) {
                                                      (*static_cast<const Body*>(it))(range, seat);
                                                  }}});
}

bool runs_all_once(Team& team, std::int64_t tasks, int seats) {
    std::vector<std::atomic<int>> runs(static_cast<std::size_t>(tasks));
    run(team, tasks, seats, [&](Range range, int) {
        for (std::int64_t i = range.begin; i < range.end; ++i) ++runs[static_cast<std::size_t>(i)];
    });
    for (const auto& it : runs) {
        if (it != 1) return false;
    }
    return true;
}

void wait_for(const std::atomic<bool>& flag) {
    while (!flag) std::this_thread::yield();
}

TEST_CASE("a loop ends when its tasks are done, whoever has come") {
    Team team(4);
    for (int repeat = 0; repeat < 200; ++repeat) {
        for (const int seats : {2, 4, 9}) CHECK(runs_all_once(team, 1 + repeat % 37, seats));
        if (repeat % 50 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    CHECK(team.workers() == 3);
}

TEST_CASE("workers come to a loop that takes long, awake or asleep") {
    Team team(3);
    for (const int milliseconds : {0, 20}) {
        std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
        std::atomic<int> inside = 0;
        run(team, 3, 3, [&](Range, int) {
            ++inside;
            while (inside < 3) std::this_thread::yield();
        });
        CHECK(inside == 3);
    }
}

TEST_CASE("no two threads are on one seat") {
    Team team(6);
    for (int repeat = 0; repeat < 100; ++repeat) {
        std::vector<std::atomic<int>> on(4);
        std::atomic<int> wrong = 0;
        run(team, 64, 4, [&](Range, int seat) {
            if (++on.at(static_cast<std::size_t>(seat)) != 1) ++wrong;
            std::this_thread::yield();
            --on.at(static_cast<std::size_t>(seat));
        });
        CHECK(wrong == 0);
    }
}

TEST_CASE("a task has the threads that its loop has no tasks for") {
    Team team(2);
    CHECK(threads_in_task() == 0);
    for (const auto& [tasks, threads] : {std::pair{8, 2}, std::pair{2, 2}, std::pair{3, 8}}) {
        std::atomic<int> inside = 0, least = threads;
        run(team, tasks, threads, [&](Range range, int) {
            inside += threads_in_task() * static_cast<int>(range.size());
            least = std::min<int>(least, threads_in_task());
        });
        CHECK(inside == std::max(tasks, threads));
        CHECK(least == std::max(threads / tasks, 1));
    }
    CHECK(threads_in_task() == 0);
}

TEST_CASE("threads come to a loop inside of a task when the loop around it has none for them") {
    Team team(4);
    for (const int milliseconds : {0, 20}) {
        std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
        std::atomic<int> inside = 0;
        run(team, 2, 4, [&](Range, int) {
            run(team, 2, threads_in_task(), [&](Range, int) {
                ++inside;
                while (inside < 3) std::this_thread::yield();
            });
        });
        CHECK(inside == 4);
    }
    for (int repeat = 0; repeat < 200; ++repeat) {
        std::atomic<int> tasks = 0;
        run(team, 3, 16, [&](Range, int) {
            run(team, 20, threads_in_task(),
                [&](Range range, int) { tasks += static_cast<int>(range.size()); });
        });
        CHECK(tasks == 60);
    }
    const auto fail = [&](Range, int) {
        run(team, 2, 2, [](Range, int) { throw std::runtime_error("inner"); });
    };
    CHECK_THROWS_WITH_AS(run(team, 2, 4, fail), "inner", std::runtime_error);
}

TEST_CASE("callers share the threads") {
    Team team(3);
    std::atomic<int> wrong = 0;
    {
        std::vector<std::jthread> callers;
        for (int caller = 0; caller < 8; ++caller) {
            callers.emplace_back([&] {
                for (int repeat = 0; repeat < 200; ++repeat) {
                    if (!runs_all_once(team, 24, 3)) ++wrong;
                }
            });
        }
    }
    CHECK(wrong == 0);
    CHECK(team.workers() <= 2);
}

TEST_CASE("more callers than there are places for jobs compute alone") {
    Team team(2);
    std::atomic<int> inside = 0, wrong = 0;
    constexpr int kCallers = 70;
    {
        std::vector<std::jthread> callers;
        for (int caller = 0; caller < kCallers; ++caller) {
            callers.emplace_back([&] {
                std::atomic<bool> first = true;
                std::atomic<int> tasks = 0;
                run(team, 4, 2, [&](Range range, int) {
                    tasks += static_cast<int>(range.size());
                    if (!first.exchange(false)) return;
                    ++inside;
                    while (inside < kCallers) std::this_thread::yield();
                });
                if (tasks != 4) ++wrong;
            });
        }
    }
    CHECK(wrong == 0);
}

TEST_CASE("the first exception arrives, tasks that nobody began are left, and the team goes on") {
    Team team(3);
    for (int bad = 0; bad < 30; ++bad) {
        const auto fail = [&](Range range, int) {
            if (range.begin <= bad && bad < range.end) throw std::runtime_error("bad");
        };
        CHECK_THROWS_WITH_AS(run(team, 30, 3, fail), "bad", std::runtime_error);
        CHECK(runs_all_once(team, 30, 3));
    }
    const auto always = [](Range, int) { throw std::runtime_error("all"); };
    CHECK_THROWS_AS(run(team, 30, 3, always), std::runtime_error);
}

TEST_CASE("fewer CPUs than threads: as many run as there are CPUs") {
    Team team(4);
    CHECK(runs_all_once(team, 100, 4));
    team.use(cpus_of_process(), 1);
    std::set<std::thread::id> ids;
    run(team, 100, 4, [&](Range, int) { ids.insert(std::this_thread::get_id()); });
    CHECK(ids == std::set<std::thread::id>{std::this_thread::get_id()});
    team.use(cpus_of_process(), 4);
    CHECK(runs_all_once(team, 100, 4));
}

TEST_CASE("a worker that is narrowed to other CPUs to be woken may then use all of the process's") {
    Team team(2);
    const auto caller = std::this_thread::get_id();
    CpuMask seen;
    for (int repeat = 0; repeat < 1000 && seen != cpus_of_process(); ++repeat) {
        if (repeat % 10 == 0) {  // for longer than it looks for work
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
        }
        std::atomic<bool> done = false;
        run(team, 2, 2, [&](Range, int) {
            if (std::this_thread::get_id() == caller) return wait_for(done);
            seen = cpus_of_thread(0);
            done = true;
        });
        std::this_thread::yield();
    }
    CHECK((seen == cpus_of_process()));
}

TEST_CASE("an application's threads run loops") {
    struct Threads : ThreadPool {
        int num_threads() const override { return 3; }
        void run(int count, void (*work)(void*, int), void* argument) override {
            std::vector<std::jthread> made;
            for (int i = 0; i < count; ++i) made.emplace_back([=] { work(argument, i); });
        }
    };
    struct Serial : ThreadPool {
        int num_threads() const override { return 2; }
        void run(int count, void (*work)(void*, int), void* argument) override {
            for (int i = 0; i < count; ++i) work(argument, i);
        }
    };
    Threads threads;
    Serial serial;
    const int before = num_threads();
    for (ThreadPool* const pool :
         {static_cast<ThreadPool*>(&threads), static_cast<ThreadPool*>(&serial)}) {
        use_thread_pool(pool);
        CHECK(num_threads() == pool->num_threads());
        std::vector<std::atomic<int>> runs(100);
        parallel_for(100, [&](std::int64_t i) { ++runs[static_cast<std::size_t>(i)]; });
        CHECK(std::ranges::all_of(runs, [](const auto& it) { return it == 1; }));
        CHECK_THROWS_AS(parallel_for(9, [](std::int64_t) { throw std::runtime_error(""); }),
                        std::runtime_error);
        use_thread_pool(nullptr);
    }
    CHECK(num_threads() == before);
}

}  // namespace
}  // namespace dlprim
