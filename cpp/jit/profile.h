// Generated code has no symbols, so profilers and disassemblers see bare addresses. This tells them
// the names, for those who ask by environment variable, read once per process:
//
//   DLPRIM_JIT_PROFILE=perfmap   adds "start size name" to /tmp/perf-PID.map, which perf reads
//   DLPRIM_JIT_PROFILE=jitdump   writes jit-PID.dump, names and code for `perf inject --jit`
//   DLPRIM_JIT_DUMP=folder       writes folder/NAME.bin, the code alone, and jit-PID.dump there
//
// Profiling is a side of the work, never the work: a file that cannot be written is a warning.
#pragma once

#include <chrono>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>

#include "jit/code.h"
#include "jit/verbose.h"

namespace dlprim {

// Where code must lie for profilers: perf looks anonymous memory alone up in its map, and the pages
// that kernels share are a file to it.
// Throws std::invalid_argument when DLPRIM_JIT_PROFILE has another value than these.
Pages pages_for_profile();

// Whether profile() would do anything: names cost time to make.
// Throws what pages_for_profile() does.
bool profiles();

// Called once per generated function. Thread-safe, and a forked child writes files of its own.
void profile(const std::string& name, std::span<const std::uint8_t> code);

// The kernel that `make` generates, timed, profiled and reported as asked for; said_of(kernel)
// stands in the report between its name and its size.
template <class Make, class SaidOf>
auto generated_kernel(const Make& make, const SaidOf& said_of) {
    const auto start = std::chrono::steady_clock::now();
    auto kernel = make();
    const std::chrono::duration<double, std::micro> elapsed =
        std::chrono::steady_clock::now() - start;
    if (profiles()) profile(kernel->name(), kernel->code());
    if (verbose()) {
        report_machine();
        report("generated " + kernel->name() + ": " + said_of(*kernel) +
               std::to_string(kernel->bytes()) + " bytes, " +
               std::to_string(std::llround(elapsed.count())) + " us");
    }
    return kernel;
}
template <class Make>
auto generated_kernel(const Make& make) {
    return generated_kernel(make, [](const auto& /*kernel*/) { return std::string(); });
}

}  // namespace dlprim
