// Plans that are made while other threads ask for them, prescribe another schedule, or fork.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

#include "primitives/linear/linear_contraction.h"
#include "primitives/nest/scheduled_pass.h"

namespace dlprim {
namespace {

struct Numbered {
    std::int64_t variant = 0;
    Schedule schedule = {};

    std::vector<std::string> kernel_names() const { return {std::to_string(variant)}; }
};

constexpr std::int64_t kSlow = 7;

// Whose slow variant is made for as long as `made` says, and says when that began.
struct Slow {
    std::promise<void> begun = {};
    std::promise<void> made = {};

    Scheduled<Numbered>::Rules rules() {
        return {.plan =
                    [this](std::int64_t variant, const Schedule& schedule) {
                        if (variant == kSlow) {
                            begun.set_value();
                            made.get_future().wait();
                        }
                        return std::make_shared<const Numbered>(Numbered{variant, schedule});
                    },
                .candidates = [](int) { return std::vector{parse_schedule("M N")}; },
                .loops = [] { return std::vector<Loop>{{'m', 2}, {'n', 3}}; }};
    }
};

TEST_CASE("the contraction that schedules are chosen for is that of the plan") {
    const LinearProblem problem{.shape = {.N = 60, .C = 40, .K = 70}};
    int made = 0;
    const ScheduledPass pass({.contraction = [&](std::int64_t) {
        ++made;
        return linear_forward_contraction(problem, {});
    }});
    const auto first = pass.typical_plan();
    CHECK(made == 1);
    CHECK(first->nest().schedule() == pass.schedule());
    CHECK(pass.plan(1)->contraction().flops == first->contraction().flops);
    CHECK(made == 2);
    CHECK(pass.candidates(1).front() == pass.schedule());
    CHECK(pass.typical_plan() == first);
}

TEST_CASE("a plan is made once, and again for another schedule") {
    Slow slow;
    Scheduled<Numbered> nest(slow.rules());
    const auto first = nest.plan(1);
    CHECK(nest.plan(1) == first);
    CHECK(first->schedule == parse_schedule("M N"));
    nest.set_schedule(parse_schedule("N M"));
    CHECK(nest.plan(1) != first);
    CHECK(nest.plan(1)->schedule == parse_schedule("N M"));
    CHECK(nest.kernel_names() == std::vector<std::string>{"0"});
}

TEST_CASE("a plan that was being made when another schedule came does not stay") {
    Slow slow;
    Scheduled<Numbered> nest(slow.rules());
    Scheduled<Numbered>::PlanPointer late;
    {
        const std::jthread maker([&] { late = nest.plan(kSlow); });
        slow.begun.get_future().wait();
        nest.set_schedule(parse_schedule("N M"));
        slow.made.set_value();
    }
    CHECK(late->schedule == parse_schedule("M N"));
    slow = {};
    slow.made.set_value();
    CHECK(nest.plan(kSlow)->schedule == parse_schedule("N M"));
}

TEST_CASE("a child of fork has plans while a thread that it has not was making one") {
    Slow slow;
    Scheduled<Numbered> nest(slow.rules());
    int status = -1;
    {
        const std::jthread maker([&] { nest.plan(kSlow); });
        slow.begun.get_future().wait();
        const pid_t child = fork();
        if (child == 0) {
            alarm(20);  // a hang ends as a signal
            nest.set_schedule(parse_schedule("N M"));
            _exit(nest.plan(1)->variant == 1 && nest.schedule() == parse_schedule("N M") ? 0 : 1);
        }
        waitpid(child, &status, 0);
        slow.made.set_value();
    }
    CHECK(status == 0);
}

// Of float32, in blocks of 64 columns.
Contraction product(std::int64_t M, std::int64_t N, std::int64_t K) {
    Contraction made;
    made.loops = {{.letter = 'm', .extent = M, .a = 4 * K, .c = 4 * N},
                  {.letter = 'n', .extent = N / 64, .b = 256, .c = 256},
                  {.letter = 'k', .extent = 1, .sum = true}};
    made.rows = {.loop = 0, .unit = 1, .total = M};
    made.columns = {.loop = 1, .unit = 64, .total = N};
    made.batch = {.loop = 2, .unit = K, .total = K};
    made.selections = {{}};
    made.classes = {{{.lda = K, .entries_a = {0}, .entries_b = {0}, .first = true, .last = true}}};
    made.ldb = made.ldc = N;
    made.flops = 1e9;
    return made;
}

TEST_CASE("a child of fork gets parts of columns that a thread that it has not was making") {
    static_assert(!std::is_copy_constructible_v<ContractionPlan>);
    for (std::int64_t turn = 0; turn < 10; ++turn) {
        // Other kernels each time, which take time to make.
        const ContractionPlan plan(product(48 - turn, 320, 12), parse_schedule("N m48 k"));
        std::atomic<bool> begun = false;
        const std::jthread maker([&] {
            begun = true;
            for (int threads = 3; threads < 40; ++threads) plan.for_threads(threads);
        });
        while (!begun) std::this_thread::yield();
        const pid_t child = fork();
        if (child == 0) {
            alarm(20);  // a hang ends as a signal
            _exit(plan.for_threads(4).nest().tasks() == 20 ? 0 : 1);
        }
        int status = -1;
        waitpid(child, &status, 0);
        REQUIRE(status == 0);
    }
}

}  // namespace
}  // namespace dlprim
