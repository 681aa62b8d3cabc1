#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "primitives/tensor/parallel.h"

namespace dlprim {
namespace {

// Sets the number of threads for one test case.
class Threads {
public:
    explicit Threads(int count) : before_(set_threads_of_caller(count)) {}
    Threads(const Threads&) = delete;
    Threads& operator=(const Threads&) = delete;
    ~Threads() { set_threads_of_caller(before_); }

private:
    int before_;
};

// How often parallel_for ran each task.
std::vector<int> runs_of(std::int64_t tasks) {
    std::vector<std::atomic<int>> runs(static_cast<std::size_t>(tasks));
    parallel_for(tasks, [&](std::int64_t task) { ++runs.at(static_cast<std::size_t>(task)); });
    return {runs.begin(), runs.end()};
}

TEST_CASE("every task runs exactly once for any number of tasks and threads") {
    for (const int threads : {1, 2, 3, 4, 7, 16}) {
        const Threads use(threads);
        for (const std::int64_t tasks : {0, 1, 2, 3, 5, 8, 15, 16, 17, 100, 1001}) {
            CHECK(runs_of(tasks) == std::vector<int>(static_cast<std::size_t>(tasks), 1));
        }
    }
}

TEST_CASE("ranges are of neighbouring tasks, on seats below the number of threads") {
    for (const int threads : {1, 2, 5}) {
        const Threads use(threads);
        std::vector<std::atomic<int>> runs(77);
        std::atomic<int> wrong = 0;
        parallel_ranges(77, threads, [&](Range range, int seat) {
            if (seat < 0 || seat >= threads || range.size() <= 0) ++wrong;
            for (std::int64_t i = range.begin; i < range.end; ++i) {
                ++runs.at(static_cast<std::size_t>(i));
            }
        });
        CHECK(wrong == 0);
        CHECK(std::ranges::all_of(runs, [](const auto& it) { return it == 1; }));
    }
}

TEST_CASE("one thread goes through a loop in its order") {
    const Threads use(1);
    std::vector<std::int64_t> tasks;
    parallel_for(3, [&](std::int64_t task) { tasks.push_back(task); }, TaskOrder::descending);
    CHECK(tasks == std::vector<std::int64_t>{2, 1, 0});
}

TEST_CASE("small work uses no other threads, and what is around it does again") {
    const Threads threads(3);
    {
        const WorkOf small(1e3, 1e3);
        CHECK(num_threads() == 1);
        const WorkOf within_small(1e9, 1e9);
        CHECK(num_threads() == 1);
    }
    CHECK(num_threads() == 3);
    const WorkOf multiply_much(1e9, 0);
    CHECK(num_threads() == 3);
    const WorkOf read_much(1e3, 1e9);
    CHECK(num_threads() == 3);
}

TEST_CASE("one thread means the caller's") {
    const Threads use(1);
    std::set<std::thread::id> ids;
    parallel_for(10, [&](std::int64_t) { ids.insert(std::this_thread::get_id()); });
    CHECK(ids == std::set<std::thread::id>{std::this_thread::get_id()});
}

TEST_CASE("the exception of a task reaches the caller and the next loop is whole") {
    for (const int threads : {1, 2, 5}) {
        const Threads use(threads);
        for (const std::int64_t bad : {0, 13, 49}) {
            std::string message;
            try {
                parallel_for(50, [&](std::int64_t task) {
                    if (task == bad) throw std::runtime_error("task " + std::to_string(task));
                });
            } catch (const std::runtime_error& error) {
                message = error.what();
            }
            CHECK(message == "task " + std::to_string(bad));
        }
        CHECK(runs_of(50) == std::vector<int>(50, 1));
    }
}

TEST_CASE("when every task throws, one exception arrives") {
    const Threads use(4);
    const auto fail = [](std::int64_t task) { throw std::runtime_error(std::to_string(task)); };
    CHECK_THROWS_AS(parallel_for(100, fail), std::runtime_error);
}

TEST_CASE("a loop inside a task of many runs serially, on the task's thread") {
    const Threads use(4);
    std::atomic<int> inner = 0;
    std::atomic<int> elsewhere = 0;
    parallel_for(8, [&](std::int64_t) {
        const auto id = std::this_thread::get_id();
        parallel_for(5, [&](std::int64_t) {
            ++inner;
            if (std::this_thread::get_id() != id) ++elsewhere;
        });
    });
    CHECK(inner == 40);
    CHECK(elsewhere == 0);
}

TEST_CASE("a caller's own number is for its thread, the process's for all that have none") {
    const int start = num_threads();
    {
        const Threads use(3);
        CHECK(num_threads() == 3);
        CHECK(reason_for_num_threads() == "set for this thread");
        int seen = 0;
        std::jthread([&] { seen = num_threads(); }).join();
        CHECK(seen == start);
    }
    std::jthread([&] { set_num_threads(5); }).join();
    CHECK(num_threads() == 5);
    CHECK(reason_for_num_threads() == "set for the process");
    const Threads use(3);
    CHECK(num_threads() == 3);
    set_num_threads(start);
    CHECK(num_threads() == start);
}

TEST_CASE("fewer than one thread is refused") {
    CHECK_THROWS_AS(set_num_threads(0), std::invalid_argument);
    CHECK_THROWS_AS(set_num_threads(-3), std::invalid_argument);
}

TEST_CASE("several threads may loop at once") {
    const Threads use(2);
    std::atomic<int> wrong = 0;
    {
        std::vector<std::jthread> callers;
        for (int caller = 0; caller < 4; ++caller) {
            callers.emplace_back([&] {
                for (int repeat = 0; repeat < 50; ++repeat) {
                    if (runs_of(20) != std::vector<int>(20, 1)) ++wrong;
                }
            });
        }
    }
    CHECK(wrong == 0);
}

// What a process does that was forked after its parent had started threads: 0 when all is well.
int forked_child(int generations) {
    alarm(20);  // a hang ends as a signal
    if (num_threads() != 4) return 1;
    for (int repeat = 0; repeat < 20; ++repeat) {
        if (runs_of(30) != std::vector<int>(30, 1)) return 2;
    }
    if (generations == 1) return 0;
    const pid_t child = fork();
    if (child == 0) _exit(forked_child(generations - 1));
    int status = 0;
    if (waitpid(child, &status, 0) != child || !WIFEXITED(status)) return 3;
    return WEXITSTATUS(status);
}

TEST_CASE("a child of fork has threads of its own, and so has its own child") {
    const Threads use(4);
    runs_of(100);
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) _exit(forked_child(2));
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    REQUIRE(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
    CHECK(num_threads() == 4);
    CHECK(runs_of(100) == std::vector<int>(100, 1));
}

}  // namespace
}  // namespace dlprim
