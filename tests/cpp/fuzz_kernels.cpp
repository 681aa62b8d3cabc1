// Draws random kernel requests of all types, epilogues, addressings and ISA levels, runs them
// between guard pages against the scalar reference, and prints the line that repeats the first
// failure. A case is a number: everything about it is drawn from that seed and the usable ISA.
//
//   fuzz_kernels [--seconds S] [--seed FIRST]     cases FIRST, FIRST + 1, ... for S seconds
//   fuzz_kernels --case N                         that one, with its plan
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "typed_problem.h"

namespace dlprim::testing {
namespace {

class Draw {
public:
    explicit Draw(std::uint64_t seed) : random_(seed) {}

    std::int64_t from(std::int64_t low, std::int64_t high) {
        return low +
               static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(high - low + 1));
    }
    bool once_in(std::int64_t times) { return from(1, times) == 1; }
    template <typename T, std::size_t count>
    T one_of(const std::array<T, count>& values) {
        return values[static_cast<std::size_t>(from(0, std::int64_t{count} - 1))];
    }

    // Extents: the edges of vectors and words more often than chance would have it.
    std::int64_t extent() {
        constexpr std::array<std::int64_t, 12> edges = {1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 33};
        if (once_in(3)) return one_of(edges);
        return once_in(8) ? from(65, 200) : from(1, 64);
    }

private:
    std::mt19937_64 random_;
};

void draw_types(Draw& draw, BrgemmSpec& spec) {
    constexpr std::array int8_results = {DType::s32, DType::f32, DType::bf16, DType::u8, DType::s8};
    switch (draw.from(0, 3)) {
        case 0: break;
        case 1:
            spec.a_type = spec.b_type = DType::bf16;
            spec.c_type = draw.once_in(2) ? DType::bf16 : DType::f32;
            break;
        default:
            spec.a_type = draw.once_in(2) ? DType::u8 : DType::s8;
            spec.b_type = DType::s8;
            spec.c_type = draw.one_of(int8_results);
            spec.zero_point_a = draw.once_in(3);
            spec.zero_point_b = draw.once_in(3);
    }
}

void draw_epilogue(Draw& draw, BrgemmSpec& spec) {
    if (spec.c_type == DType::s32) return;
    Epilogue& epilogue = spec.epilogue;
    epilogue.scale = static_cast<Scale>(draw.from(0, 2));
    epilogue.bias = draw.once_in(2);
    epilogue.residual = draw.once_in(3);
    epilogue.activation =
        static_cast<Activation>(draw.from(0, static_cast<std::int64_t>(Activation::swish)));
    epilogue.relu_mask = epilogue.activation == Activation::relu && draw.once_in(2);
    if (epilogue.relu_mask && draw.once_in(2)) spec.ldmask = (spec.n + 7) / 8 + draw.from(0, 3);
}

void draw_prefetches(Draw& draw, BrgemmSpec& spec) {
    if (!draw.once_in(3)) return;
    spec.prefetch_a = draw.once_in(2);
    spec.prefetch_b = draw.once_in(2) && !spec.epilogue.relu_mask;
    spec.prefetch_c = draw.once_in(2);
}

// Rows of C and gaps are aligned to the cache line.
void draw_gaps(Draw& draw, BrgemmSpec& spec) {
    constexpr std::int64_t columns = 16;
    const std::int64_t line = 64 / size_of(spec.c_type);
    if (size_of(spec.c_type) == 1 || !draw.once_in(6)) return;
    spec.n = draw.from(1, 8) * columns;
    spec.ldb = draw.once_in(2) ? spec.n + draw.from(0, 20) : 0;
    spec.gaps = {static_cast<int>(draw.from(0, 3)), static_cast<int>(draw.from(0, 3))};
    const std::int64_t row = ((spec.n + line - 1) / line + draw.from(0, 1)) * line;
    spec.ldc = row * (spec.gaps.rows + 1);
}

BrgemmSpec draw_spec(Draw& draw) {
    BrgemmSpec spec;
    spec.m = draw.extent();
    spec.n = draw.extent();
    spec.k = draw.extent();
    draw_types(draw, spec);
    spec.trans_a = draw.once_in(3);
    if (draw.once_in(2)) spec.lda = spec.a_columns() + draw.from(0, 20);
    spec.sliding_a = draw.once_in(4);
    if (spec.sliding_a) spec.lda = draw.from(1, spec.a_columns());
    if (draw.once_in(2)) spec.ldb = spec.n + draw.from(0, 20);
    if (draw.once_in(2)) spec.ldc = spec.n + draw.from(0, 20);
    const bool adds = !is_int8(spec.a_type) || spec.c_type == DType::s32;
    spec.beta = adds && draw.once_in(2) ? 1 : 0;
    spec.addressing = static_cast<Addressing>(draw.from(0, 2));
    draw_gaps(draw, spec);
    draw_epilogue(draw, spec);
    draw_prefetches(draw, spec);
    return validated(spec);
}

std::uint64_t running_case = 0;

extern "C" void report_crash(int number) {
    char line[96];
    const int length = std::snprintf(line, sizeof(line), "signal %d; repeat with --case %llu\n",
                                     number, static_cast<unsigned long long>(running_case));
    if (write(STDOUT_FILENO, line, static_cast<std::size_t>(length)) < 0) _exit(3);
    _exit(2);
}

bool run_case(std::uint64_t seed, bool talk) {
    running_case = seed;
    Draw draw(seed);
    const BrgemmSpec spec = draw_spec(draw);
    const auto isa = static_cast<Isa>(draw.from(0, static_cast<std::int64_t>(usable_isa())));
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

int run_for(double seconds, std::uint64_t first) {
    const auto start = std::chrono::steady_clock::now();
    std::uint64_t seed = first;
    std::uint64_t failures = 0;
    while (std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() <
           seconds) {
        if (!run_case(seed++, false) && ++failures == 10) break;
    }
    std::printf("%llu cases from %llu on, %llu failed, ISA levels up to %s\n",
                static_cast<unsigned long long>(seed - first),
                static_cast<unsigned long long>(first), static_cast<unsigned long long>(failures),
                std::string(name_of(usable_isa())).c_str());
    return failures == 0 ? 0 : 1;
}

int main_with(int count, char** arguments) {
    double seconds = 60;
    std::uint64_t first = 1;
    std::signal(SIGSEGV, report_crash);
    std::signal(SIGBUS, report_crash);
    std::signal(SIGILL, report_crash);
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
        if (name == "--case") return run_case(std::strtoull(value, nullptr, 10), true) ? 0 : 1;
        if (name == "--seconds") seconds = std::strtod(value, nullptr);
        if (name == "--seed") first = std::strtoull(value, nullptr, 10);
    }
    return run_for(seconds, first);
}

}  // namespace
}  // namespace dlprim::testing

int main(int count, char** arguments) { return dlprim::testing::main_with(count, arguments); }
