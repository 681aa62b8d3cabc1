#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "conv_problem.h"
#include "jit/isa.h"
#include "primitives/layers/batch_norm.h"
#include "primitives/tensor/workspace.h"

namespace dlprim {
namespace {

using Lease = WorkspacePool::Lease;

TEST_CASE("a lease has as many bytes as asked for, at a cache line") {
    WorkspacePool pool;
    for (const std::int64_t bytes : {0, 1, 3, 4, 63, 64, 65, 1000, 4097, 10, 1}) {
        const Lease lease(pool, bytes);
        CHECK(reinterpret_cast<std::uintptr_t>(lease.data()) % 64 == 0);
        if (bytes > 0) std::memset(lease.data(), 0xa5, static_cast<std::size_t>(bytes));
    }
}

TEST_CASE("the next call reuses what a call has returned, if it is large enough") {
    WorkspacePool pool;
    const char* first = nullptr;
    {
        const Lease lease(pool, 1000);
        first = lease.data();
    }
    CHECK(Lease(pool, 0).data() == nullptr);  // takes none
    for (const std::int64_t bytes : {1000, 1, 500, 1000}) {
        const Lease lease(pool, bytes);
        CHECK(lease.data() == first);
    }
    const char* larger = nullptr;
    {
        const Lease lease(pool, 5000);
        std::memset(lease.data(), 1, 5000);
        larger = lease.data();
    }
    for (const std::int64_t bytes : {1000, 5000}) {
        const Lease lease(pool, bytes);
        CHECK(lease.data() == larger);
    }
}

TEST_CASE("calls in flight own different pieces, which all come back") {
    WorkspacePool pool;
    std::set<const char*> pieces;
    for (int repeat = 0; repeat < 3; ++repeat) {
        std::vector<std::unique_ptr<Lease>> leases;
        std::set<const char*> now;
        for (int i = 0; i < 5; ++i) {
            leases.push_back(std::make_unique<Lease>(pool, 256));
            now.insert(leases.back()->data());
        }
        CHECK(now.size() == 5);
        pieces.insert(now.begin(), now.end());
    }
    CHECK(pieces.size() == 5);
}

TEST_CASE("more calls in flight than ever before") {
    WorkspacePool pool;
    for (const std::size_t count : {1, 40, 3, 100}) {
        std::vector<std::unique_ptr<Lease>> leases;
        for (std::size_t i = 0; i < count; ++i) {
            leases.push_back(std::make_unique<Lease>(pool, 64));
            std::memset(leases.back()->data(), static_cast<int>(i), 64);
        }
        for (std::size_t i = 0; i < count; ++i) {
            CHECK(leases[i]->data()[63] == static_cast<char>(i));
        }
    }
}

TEST_CASE("leases of many threads never overlap") {
    WorkspacePool pool;
    int clashes[8] = {};
    {
        std::vector<std::jthread> threads;
        for (int thread = 0; thread < 8; ++thread) {
            threads.emplace_back([&, thread] {
                for (std::int64_t i = 0; i < 500; ++i) {
                    const std::int64_t bytes = 1 + (i * 37 + thread) % 3000;
                    const Lease lease(pool, bytes);
                    std::fill_n(lease.data(), bytes, static_cast<char>(thread));
                    const bool intact =
                        std::all_of(lease.data(), lease.data() + bytes,
                                    [&](char byte) { return byte == static_cast<char>(thread); });
                    clashes[thread] += intact ? 0 : 1;
                }
            });
        }
    }
    for (const int count : clashes) CHECK(count == 0);
}

TEST_CASE("who shares a pool gets what another one has returned, and the last takes it along") {
    std::shared_ptr<WorkspacePool> one = WorkspacePool::shared();
    // Another suite of the same process may have asked for one that lasts.
    const long lasting = one.use_count() - 1;
    const std::weak_ptr<WorkspacePool> seen = one;
    std::shared_ptr<WorkspacePool> other = WorkspacePool::shared();
    constexpr std::int64_t kBytes = 1 << 25;  // more than other suites have left there
    const char* first = nullptr;
    {
        const Lease lease(*one, kBytes);
        first = lease.data();
    }
    one.reset();
    CHECK(Lease(*other, kBytes).data() == first);
    other.reset();
    CHECK(seen.use_count() == lasting);
}

// Whether children that do `call` come to an end while another thread of the parent is at it.
template <class Call>
bool children_end(int children, const Call& call) {
    std::atomic<bool> done = false;
    std::jthread busy([&] {
        while (!done) call();
    });
    bool all = true;
    for (int i = 0; i < children && all; ++i) {
        const pid_t child = fork();
        if (child == 0) {
            alarm(10);
            call();
            _exit(0);
        }
        int status = -1;
        all = waitpid(child, &status, 0) == child && status == 0;
    }
    done = true;
    return all;
}

TEST_CASE("a child takes scratch whatever other threads of its parent do") {
    const std::shared_ptr<WorkspacePool> pool = WorkspacePool::shared();
    CHECK(children_end(50, [&] { const Lease lease(*pool, 64); }));
}

TEST_CASE("a child normalises while another thread of its parent does") {
    const testing::Threads one(1);  // a team of threads would not be there in the child
    usable_isa();                   // a child of its first use would find it half read
    CHECK(children_end(300, [] {
        const float src = 1;
        float dst = 0, mean = 0, inverse_std = 0;
        batch_norm_forward({.tensor = {1, 1, 1, channel_blocks(1, 1)}},
                           {.src = &src, .dst = &dst, .mean = &mean, .inverse_std = &inverse_std});
    }));
}

}  // namespace
}  // namespace dlprim
