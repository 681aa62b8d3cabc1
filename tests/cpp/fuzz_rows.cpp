// Draws random row programs of all operations, operands and types, runs them between guard pages
// against the interpreter, and prints the line that repeats a failure (fuzzing.h has the options).
#include <algorithm>
#include <array>
#include <cstdio>
#include <string>

#include "draw.h"
#include "fuzzing.h"
#include "row_problem.h"

namespace dlprim::testing {
namespace {

bool run_case(std::uint64_t seed, bool talk) {
    Draw draw(seed);
    const RowProgram program = draw_row_program(draw);
    const Isa isa = draw.one_of(std::array{Isa::avx2, Isa::avx512, Isa::avx512_bf16});
    RowProblem problem(program, draw);
    const RowKernel kernel(program.spec, std::min(isa, usable_isa()));
    if (talk) std::printf("%s, %zu bytes\n", kernel.name().c_str(), kernel.code().size());
    const std::string mismatch = problem.mismatch(kernel);
    if (mismatch.empty()) return true;
    std::printf("%s: %s; repeat with DLPRIM_MAX_ISA=%s fuzz_rows --case %llu\n",
                kernel.name().c_str(), mismatch.c_str(), std::string(name_of(usable_isa())).c_str(),
                static_cast<unsigned long long>(seed));
    return false;
}

}  // namespace
}  // namespace dlprim::testing

int main(int count, char** arguments) {
    return dlprim::testing::fuzz(count, arguments, dlprim::testing::run_case);
}
