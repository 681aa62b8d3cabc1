#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "jit/cache.h"

namespace dlprim {
namespace {

constexpr int kThreads = 8;
constexpr std::int64_t kPlenty = 1 << 20;
constexpr std::chrono::seconds kPatience(20);

struct Value {
    int number = 0;
    std::int64_t size = 1;

    std::int64_t bytes() const { return size; }
};

using Numbers = Cache<int, Value>;

Numbers::Pointer make(int number, std::int64_t size = 1) {
    return std::make_shared<const Value>(Value{number, size});
}

Numbers::Pointer put(Numbers& cache, int key, std::int64_t size = 1) {
    return cache.get_or_create(key, [&] { return make(key, size); });
}

// Whether `key` is held already; if not, it is created by asking.
bool held(Numbers& cache, int key) {
    bool made = false;
    cache.get_or_create(key, [&] {
        made = true;
        return make(key);
    });
    return !made;
}

void on_threads(const std::function<void(int)>& body) {
    std::barrier start(kThreads);
    std::vector<std::jthread> threads;
    for (int i = 0; i < kThreads; ++i) {
        threads.emplace_back([&, i] {
            start.arrive_and_wait();
            body(i);
        });
    }
}

TEST_CASE("a value is made once and found afterwards") {
    Numbers cache(kPlenty, kPlenty);
    const auto first = put(cache, 7, 100);
    const auto second = put(cache, 7, 100);
    CHECK(first == second);
    CHECK(first->number == 7);
    const CacheInfo info = cache.info();
    CHECK(info.entries == 1);
    CHECK(info.bytes == 100);
    CHECK(info.hits == 1);
    CHECK(info.misses == 1);
    CHECK(info.evictions == 0);
    CHECK(info.max_entries == kPlenty);
    CHECK(info.max_bytes == kPlenty);
}

TEST_CASE("eight threads that ask for the same keys cause one generation each") {
    constexpr int keys = 200;
    Numbers cache(kPlenty, kPlenty);
    std::array<std::atomic<int>, keys> made{};
    std::array<std::array<Numbers::Pointer, keys>, kThreads> got;
    on_threads([&](int thread) {
        for (int i = 0; i < keys; ++i) {
            const int key = (i + thread * 25) % keys;
            got.at(static_cast<std::size_t>(thread)).at(static_cast<std::size_t>(key)) =
                cache.get_or_create(key, [&] {
                    ++made.at(static_cast<std::size_t>(key));
                    std::this_thread::yield();
                    return make(key);
                });
        }
    });
    for (std::size_t key = 0; key < keys; ++key) {
        CHECK(made.at(key) == 1);
        for (const auto& of_thread : got) CHECK(of_thread.at(key) == got[0].at(key));
    }
    CHECK(cache.info().misses == keys);
    CHECK(cache.info().hits == keys * (kThreads - 1));
    CHECK(cache.info().bytes == keys);
}

TEST_CASE("values are generated outside the lock") {
    Numbers cache(kPlenty, kPlenty);
    std::promise<void> other_done;
    std::shared_future<void> done = other_done.get_future().share();
    std::future_status status = std::future_status::timeout;
    {
        const std::jthread slow([&] {
            cache.get_or_create(1, [&] {
                status = done.wait_for(kPatience);
                return make(1);
            });
        });
        while (cache.info().misses == 0) std::this_thread::yield();
        put(cache, 2);
        other_done.set_value();
    }
    CHECK(status == std::future_status::ready);
}

TEST_CASE("a generator that throws leaves no trace") {
    Numbers cache(kPlenty, kPlenty);
    const auto fail = [](std::string_view) -> Numbers::Pointer { throw std::runtime_error("no"); };
    CHECK_THROWS_AS(cache.get_or_create(1, [&] { return fail("first"); }), std::runtime_error);
    CHECK(cache.info().entries == 0);
    CHECK(cache.info().bytes == 0);
    CHECK(put(cache, 1)->number == 1);
    CHECK(cache.info().misses == 2);
}

TEST_CASE("those who wait for a generator that throws get its exception") {
    Numbers cache(kPlenty, kPlenty);
    std::promise<void> go;
    std::atomic<int> failures = 0;
    const auto ask = [&] {
        try {
            cache.get_or_create(1, [&]() -> Numbers::Pointer {
                go.get_future().wait();
                throw std::runtime_error("no");
            });
        } catch (const std::runtime_error& error) {
            if (std::string(error.what()) == "no") ++failures;
        }
    };
    {
        std::vector<std::jthread> threads;
        threads.emplace_back(ask);
        while (cache.info().misses == 0) std::this_thread::yield();
        for (int i = 1; i < kThreads; ++i) threads.emplace_back(ask);
        while (cache.info().hits < kThreads - 1) std::this_thread::yield();
        go.set_value();
    }
    CHECK(failures == kThreads);
    CHECK(put(cache, 1)->number == 1);
}

TEST_CASE("the least recently used values go when there are too many") {
    Numbers cache(3, kPlenty);
    for (int key = 1; key <= 3; ++key) put(cache, key);
    put(cache, 1);  // 2 is now the oldest
    put(cache, 4);
    CHECK(cache.info().entries == 3);
    CHECK(cache.info().evictions == 1);
    CHECK(held(cache, 1));
    CHECK(held(cache, 3));
    CHECK(held(cache, 4));
    CHECK(!held(cache, 2));
}

TEST_CASE("the least recently used values go when they are too large") {
    Numbers cache(kPlenty, 100);
    put(cache, 1, 40);
    put(cache, 2, 40);
    put(cache, 3, 70);
    CHECK(cache.info().bytes == 70);
    CHECK(cache.info().entries == 1);
    CHECK(cache.info().evictions == 2);
    CHECK(held(cache, 3));
}

TEST_CASE("a value larger than the bound is handed out") {
    Numbers cache(kPlenty, 100);
    const auto huge = put(cache, 1, 1000);
    CHECK(huge->size == 1000);
    put(cache, 2, 10);
    CHECK(cache.info().entries == 2);  // `huge` is in use here
}

TEST_CASE("values in use are never evicted, and go once they are free") {
    Numbers cache(2, kPlenty);
    auto first = put(cache, 1);
    auto second = put(cache, 2);
    auto third = put(cache, 3);
    CHECK(cache.info().entries == 3);
    CHECK(cache.info().evictions == 0);
    CHECK(put(cache, 1) == first);
    first.reset();
    second.reset();
    third.reset();
    put(cache, 4);
    CHECK(cache.info().entries == 2);
    CHECK(cache.info().evictions == 2);
    CHECK(held(cache, 4));
}

TEST_CASE("clear forgets values and counters but not those in use") {
    Numbers cache(kPlenty, kPlenty);
    const auto kept = put(cache, 1, 50);
    put(cache, 2, 50);
    cache.clear();
    const CacheInfo info = cache.info();
    CHECK(info.entries == 0);
    CHECK(info.bytes == 0);
    CHECK(info.hits + info.misses + info.evictions == 0);
    CHECK(kept->number == 1);
    CHECK(put(cache, 1) != kept);
}

TEST_CASE("clear leaves a value alone that is still being made") {
    Numbers cache(kPlenty, kPlenty);
    cache.get_or_create(1, [&] {
        cache.clear();
        return make(1, 5);
    });
    CHECK(cache.info().entries == 1);
    CHECK(cache.info().bytes == 5);
    CHECK(held(cache, 1));
}

// 0 when a child process has the finished value 1 and can make the value 2, which another thread of
// its parent was making.
int forked_child(Numbers& cache) {
    alarm(20);  // a hang ends as a signal
    if (cache.info().entries != 1 || !held(cache, 1)) return 1;
    return put(cache, 2)->number == 2 && cache.info().entries == 2 ? 0 : 2;
}

TEST_CASE("a forked child forgets what the threads it lost were making") {
    Numbers cache(kPlenty, kPlenty);
    put(cache, 1);
    std::promise<void> forked;
    int status = -1;
    {
        const std::jthread maker([&] {
            cache.get_or_create(2, [&] {
                forked.get_future().wait();
                return make(2);
            });
        });
        while (cache.info().entries < 2) std::this_thread::yield();
        cache.before_fork();
        const pid_t child = fork();
        if (child == 0) {
            cache.after_fork_in_child();
            _exit(forked_child(cache));
        }
        cache.after_fork_in_parent();
        waitpid(child, &status, 0);
        forked.set_value();
    }
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
    CHECK(held(cache, 2));
}

TEST_CASE("clearing, evicting and failing from eight threads at once keeps the books right") {
    constexpr int keys = 16;
    Numbers cache(keys / 2, kPlenty);
    std::atomic<int> wrong = 0;
    on_threads([&](int thread) {
        for (int i = 0; i < 5000; ++i) {
            const int key = (i * 7 + thread) % keys;
            if (thread == 0) cache.clear();
            try {
                const auto value = cache.get_or_create(key, [&] {
                    if (thread == 1 && i % 3 == 0) throw std::runtime_error("no");
                    return make(key, key);
                });
                if (value->number != key) ++wrong;
            } catch (const std::runtime_error&) {
                continue;
            }
        }
    });
    CHECK(wrong == 0);
    put(cache, 1, 1);  // the first without users: whatever is beyond the bound goes
    CHECK(cache.info().entries <= keys / 2);
    cache.clear();
    CHECK(cache.info().entries == 0);
    CHECK(cache.info().bytes == 0);
}

}  // namespace
}  // namespace dlprim
