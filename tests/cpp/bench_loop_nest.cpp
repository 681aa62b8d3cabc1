// What interpreting a loop nest costs: nanoseconds per body call, for nests as convolutions have
// them. The body does what a primitive does before its kernel: it adds up an offset from all
// ranges.
//
//   bench_loop_nest      a line per nest: the median and the extremes of kRepeats runs
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <vector>

#include "primitives/nest/loop_nest.h"

namespace dlprim {
namespace {

constexpr int kRepeats = 21;
constexpr std::int64_t kCallsPerRepeat = 2'000'000;

struct Case {
    std::vector<Loop> loops;
    const char* schedule;
};

// The sum is read by the caller through a volatile, so no call can be left out.
std::int64_t run_once(const LoopNest& nest, std::int64_t passes) {
    std::int64_t sum = 0;
    for (std::int64_t pass = 0; pass < passes; ++pass) {
        nest.run([&sum](const LoopNest::Ranges& ranges) {
            for (std::size_t i = 0; i < 6; ++i) {
                sum += ranges[i].begin * static_cast<std::int64_t>(64 << i);
            }
            // Keeps the compiler from adding up several calls at once.
            asm volatile("" : "+r"(sum));
        });
    }
    return sum;
}

void measure(const Case& problem) {
    const LoopNest nest(problem.loops, parse_schedule(problem.schedule));
    std::int64_t calls = 0;
    nest.run([&](const LoopNest::Ranges&) { ++calls; });
    const std::int64_t passes = std::max<std::int64_t>(kCallsPerRepeat / calls, 1);
    std::array<double, kRepeats> nanoseconds = {};
    for (double& result : nanoseconds) {
        const auto start = std::chrono::steady_clock::now();
        [[maybe_unused]] volatile std::int64_t sum = run_once(nest, passes);
        const std::chrono::duration<double, std::nano> time =
            std::chrono::steady_clock::now() - start;
        result = time.count() / static_cast<double>(passes * calls);
    }
    std::sort(nanoseconds.begin(), nanoseconds.end());
    std::printf("%-24s %9lld calls  %6.2f ns per call (%.2f to %.2f)\n", problem.schedule,
                static_cast<long long>(calls), nanoseconds[kRepeats / 2], nanoseconds.front(),
                nanoseconds.back());
}

}  // namespace
}  // namespace dlprim

int main() {
    const std::vector<dlprim::Loop> rows = {{'n', 8},  {'k', 8}, {'c', 4},
                                            {'p', 56}, {'q', 1}, {'r', 1}};
    const std::vector<dlprim::Loop> taps = {{'n', 8},  {'k', 8},  {'c', 4},
                                            {'p', 14}, {'q', 14}, {'r', 3}};
    dlprim::measure({rows, "N K c p q r"});
    dlprim::measure({rows, "N K4 c k p q r"});
    dlprim::measure({rows, "c2 N K r p4 c k q p"});
    dlprim::measure({rows, "p n k c q r"});
    dlprim::measure({taps, "N K c r p q14"});
    dlprim::measure({taps, "N K4 c r k p q7"});
    dlprim::measure({taps, "N P4 K4 c2 r p q7 k c q"});
    return 0;
}
