// The handlers of doctest stay out: it sets them for every test anew, over the one that emulates
// instructions.
#define DOCTEST_CONFIG_IMPLEMENT
#define DOCTEST_CONFIG_NO_POSIX_SIGNALS
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>

#include <doctest/doctest.h>

#include "amx/emulate_amx.h"

// Read by ThreadSanitizer where the tests are built with it: a child of fork starts threads.
extern "C" const char* __tsan_default_options();
extern "C" const char* __tsan_default_options() { return "die_after_fork=0"; }

namespace {

struct Crash {
    int signal;
    struct sigaction before;
};

std::array<Crash, 5> crashes = {
    {{SIGSEGV, {}}, {SIGBUS, {}}, {SIGILL, {}}, {SIGFPE, {}}, {SIGABRT, {}}}};

// The instruction is executed once more, for the handler that was there before.
extern "C" void name_crashed_test(int number) {
    const auto* test = doctest::getContextOptions()->currentTest;
    char line[300];
    const int length = std::snprintf(line, sizeof(line), "signal %d in the test \"%.200s\"\n",
                                     number, test == nullptr ? "" : test->m_name);
    if (write(STDOUT_FILENO, line, static_cast<std::size_t>(length)) < 0) _exit(3);
    for (const Crash& crash : crashes) {
        if (crash.signal == number) sigaction(number, &crash.before, nullptr);
    }
}

void name_crashed_tests() {
    struct sigaction action = {};
    action.sa_handler = name_crashed_test;
    for (Crash& crash : crashes) sigaction(crash.signal, &action, &crash.before);
}

}  // namespace

int main(int count, char** arguments) {
    name_crashed_tests();
    dlprim::testing::emulate_amx_where_asked();
    return doctest::Context(count, arguments).run();
}
