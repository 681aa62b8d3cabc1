#include "fuzzing.h"

#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "amx/emulate_amx.h"
#include "jit/isa.h"

namespace dlprim::testing {
namespace {

std::uint64_t running_case = 0;

extern "C" void report_crash(int number) {
    char line[96];
    const int length = std::snprintf(line, sizeof(line), "signal %d; repeat with --case %llu\n",
                                     number, static_cast<unsigned long long>(running_case));
    if (write(STDOUT_FILENO, line, static_cast<std::size_t>(length)) < 0) _exit(3);
    _exit(2);
}

int run_for(double seconds, std::uint64_t first, FuzzCase run_case) {
    const auto start = std::chrono::steady_clock::now();
    std::uint64_t seed = first;
    std::uint64_t failures = 0;
    while (std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() <
           seconds) {
        running_case = seed;
        if (!run_case(seed++, false) && ++failures == 10) break;
    }
    std::printf("%llu cases from %llu on, %llu failed, ISA levels up to %s\n",
                static_cast<unsigned long long>(seed - first),
                static_cast<unsigned long long>(first), static_cast<unsigned long long>(failures),
                std::string(name_of(usable_isa())).c_str());
    return failures == 0 ? 0 : 1;
}

}  // namespace

int fuzz(int count, char** arguments, FuzzCase run_case) {
    double seconds = 60;
    std::uint64_t first = 1;
    std::signal(SIGSEGV, report_crash);
    std::signal(SIGBUS, report_crash);
    std::signal(SIGILL, report_crash);
    emulate_amx_where_asked();
    if (count % 2 == 0) {
        std::printf("every option has a value\n");
        return 2;
    }
    for (int i = 1; i + 1 < count; i += 2) {
        const std::string name = arguments[i];
        const char* value = arguments[i + 1];
        if (name != "--case" && name != "--seconds" && name != "--seed") {
            std::printf("unknown option %s; there are --seconds, --seed and --case\n",
                        name.c_str());
            return 2;
        }
        if (name == "--case") {
            running_case = std::strtoull(value, nullptr, 10);
            return run_case(running_case, true) ? 0 : 1;
        }
        if (name == "--seconds") seconds = std::strtod(value, nullptr);
        if (name == "--seed") first = std::strtoull(value, nullptr, 10);
    }
    return run_for(seconds, first, run_case);
}

}  // namespace dlprim::testing
