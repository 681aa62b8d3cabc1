// Draws random kernel requests of all types, epilogues, addressings and ISA levels, runs them
// between guard pages against the scalar reference, and prints the line that repeats a failure
// (fuzzing.h has the options).
#include <cstdio>
#include <string>

#include "draw.h"
#include "drawn_spec.h"
#include "fuzzing.h"
#include "typed_problem.h"

namespace dlprim::testing {
namespace {

bool run_case(std::uint64_t seed, bool talk) {
    Draw draw(seed);
    const BrgemmSpec spec = draw_any_spec(draw);
    const auto isa =
        usable_isa(static_cast<Isa>(draw.from(0, static_cast<std::int64_t>(usable_isa()))));
    const std::int64_t batch = draw.once_in(8) ? 0 : draw.from(1, 5);
    const Fence fence = draw.once_in(3) ? Fence::before : Fence::after;
    const Values values = draw.once_in(3) ? Values::reals : Values::eighths;
    const TypedProblem problem(spec, batch, fence, values, seed);
    const Machine machine{.shuffles_beat_broadcast_loads = draw.once_in(2)};
    const Brgemm kernel(make_plan(spec, kernel_isa(spec, isa), machine));
    if (talk)
        std::printf("batch %lld%s, %s\n", static_cast<long long>(batch), problem.ahead().c_str(),
                    to_string(kernel.plan()).c_str());
    const std::string mismatch = problem.mismatch(kernel);
    if (mismatch.empty()) return true;
    std::printf("%s%s: %s; repeat with DLPRIM_MAX_ISA=%s fuzz_kernels --case %llu\n",
                kernel.name().c_str(), problem.ahead().c_str(), mismatch.c_str(),
                std::string(name_of(usable_isa())).c_str(), static_cast<unsigned long long>(seed));
    return false;
}

}  // namespace
}  // namespace dlprim::testing

int main(int count, char** arguments) {
    return dlprim::testing::fuzz(count, arguments, dlprim::testing::run_case);
}
