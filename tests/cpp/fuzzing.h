// What every fuzzer's command line is: a case is a number, and everything about it is drawn from
// that seed and the usable ISA, so a failure is repeated by its number.
//
//   NAME [--seconds S] [--seed FIRST]     cases FIRST, FIRST + 1, ... for S seconds
//   NAME --case N                         that one, with what was drawn
#pragma once

#include <cstdint>

namespace dlprim::testing {

// Runs a case and prints what failed; `talk` asks for what was drawn.
using FuzzCase = bool (*)(std::uint64_t seed, bool talk);

// The exit status: 0 where every case passed.
int fuzz(int count, char** arguments, FuzzCase run_case);

}  // namespace dlprim::testing
