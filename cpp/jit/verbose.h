// What DLPRIM_VERBOSE=1 prints: one line on stderr per decision, so that "why is this slow here"
// has an answer without a debugger. Off by default, and then a question costs one load.
#pragma once

#include <string_view>

namespace dlprim {

// Whether DLPRIM_VERBOSE is 1; read once per process.
// Throws std::invalid_argument when it is set to anything but 0, 1 or nothing.
bool verbose();

// Prints "dlprim: sentence" whether verbose or not; lines of several threads do not mix.
void report(std::string_view sentence);

// What the CPU has and what of it is used; printed once per process.
void report_machine();

}  // namespace dlprim
