// What waits for arrays of a run: told when the last step that uses one has run, of any thread, and
// never left behind by a run that ends otherwise.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <future>
#include <stdexcept>
#include <vector>

#include <doctest/doctest.h>

#include "graph/network.h"
#include "graph/run_events.h"
#include "primitives/tensor/parallel.h"

using namespace dlprim;
using namespace std::chrono_literals;
using Outcome = RunEvents::Outcome;

namespace {

NetworkTensor floats(std::int64_t count) { return dense_tensor("float32", 4, {count}); }

template <class Then>
NetworkStep step(std::vector<int> reads, int dst, Then then) {
    return {.kind = "step",
            .label = std::to_string(dst),
            .reads = std::move(reads),
            .writes = {dst},
            .run = [=](const Addresses& at) {
                then();
                static_cast<float*>(at[dst])[0] = 1;
            }};
}

void nothing() {}

// x -> a -> b, both results; a is read by the step of b.
struct Chain {
    Network network = {};
    std::vector<float> x = {0}, a = {0}, b = {0};

    template <class Then>
    explicit Chain(Then in_b) {
        const int src = network.input(floats(1));
        const int first = network.temporary(floats(1)), last = network.temporary(floats(1));
        const int other = network.temporary(floats(1));
        network.add(step({src}, first, nothing));
        network.add(step({first}, other, nothing));
        network.add(step({src, other}, last, in_b));
        network.finish({first, last});
    }

    void run(RunEvents* events) { network.run({{x.data()}, {a.data(), b.data()}}, events); }
};

}  // namespace

TEST_CASE("an array is final when the last step that uses it has run, and not before") {
    RunEvents events;
    std::vector<Outcome> seen;
    Chain chain([&] {
        for (const std::size_t array : {0, 1, 2}) seen.push_back(events.wait(array, 0ns));
    });
    CHECK(chain.network.final_after(0) == 3);
    CHECK(chain.network.final_after(1) == 2);
    CHECK(chain.network.final_after(2) == 3);
    CHECK(events.wait(1, 0ns) == Outcome::late);  // of a run to come
    chain.run(&events);
    CHECK(seen == std::vector{Outcome::late, Outcome::final, Outcome::late});
    for (const std::size_t array : {0, 1, 2}) CHECK(events.wait(array, 0ns) == Outcome::final);
    CHECK_THROWS_AS(events.wait(3, 0ns), std::invalid_argument);
    CHECK_THROWS_AS(chain.run(&events), std::invalid_argument);
}

TEST_CASE("who waits beside a run is woken in the middle of it") {
    RunEvents events;
    std::future<Outcome> waiting = std::async([&] { return events.wait(1, 1h); });
    Chain chain([&] { CHECK(waiting.get() == Outcome::final); });  // else the run would never end
    chain.run(&events);
}

TEST_CASE("a run that raises wakes who waits for what never comes") {
    RunEvents events;
    Chain chain([] { throw std::runtime_error("it broke"); });
    std::future<Outcome> waiting = std::async([&] { return events.wait(2, 1h); });
    CHECK_THROWS_AS(chain.run(&events), std::runtime_error);
    CHECK(waiting.get() == Outcome::abandoned);
    CHECK(events.wait(1, 0ns) == Outcome::final);
    RunEvents unused;
    unused.end();
    CHECK(unused.wait(0, 1h) == Outcome::abandoned);
}

TEST_CASE("steps of branches count from all threads") {
    constexpr int kBranches = 24;
    Network network;
    const int x = network.input(floats(1));
    std::vector<int> results;
    for (int i = 0; i < kBranches; ++i) {
        const int first = network.temporary(floats(1)), last = network.temporary(floats(1));
        for (const auto& [from, to] : {std::pair(x, first), std::pair(first, last)}) {
            NetworkStep made = step({from}, to, nothing);
            made.flops = 3e6;
            network.add(std::move(made));
        }
        results.push_back(last);
    }
    network.finish(results);
    REQUIRE(network.stretches().size() == 1);
    std::vector<float> src(1);
    std::vector<float> made(kBranches);
    std::vector<void*> places;
    for (float& it : made) places.push_back(&it);
    for (int round = 0; round < 50; ++round) {
        RunEvents events;
        std::future<int> waiting = std::async([&] {
            int found = 0;
            for (std::size_t i = 0; i <= kBranches; ++i) {
                found += events.wait(i, 1h) == Outcome::final ? 1 : 0;
            }
            return found;
        });
        network.run({{src.data()}, places}, &events);
        CHECK(waiting.get() == kBranches + 1);
    }
}

TEST_CASE("a result that no step writes is final from the start") {
    Network network;
    const int empty = network.temporary(floats(0));
    network.finish({empty});
    RunEvents events;
    float none = 0;
    network.run({{}, {&none}}, &events);
    CHECK(events.wait(0, 0ns) == Outcome::final);
}
