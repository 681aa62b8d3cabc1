// Code with tiles in child processes: one half of them has asked for the hardware's, the other
// emulates them, and both have to agree.
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <thread>

#include <doctest/doctest.h>
#include <xbyak/xbyak.h>

#include "amx/emulate_amx.h"
#include "amx/tile_configuration.h"
#include "amx/tile_file.h"
#include "draw.h"
#include "jit/code.h"

namespace dlprim::testing {
namespace {

using enum AmxOperation;

struct Ended {
    int status;
    std::string errors;  // what it wrote to stderr

    bool returned(int value) const { return WIFEXITED(status) && WEXITSTATUS(status) == value; }
    bool killed_by(int number) const { return WIFSIGNALED(status) && WTERMSIG(status) == number; }
};

// Runs `task` in a child of this process, with the default actions where it is killed by a signal.
Ended in_child(const std::function<int()>& task) {
    std::array<int, 2> pipe_ends = {};
    REQUIRE(pipe(pipe_ends.data()) == 0);
    const pid_t child = fork();
    if (child == 0) {
        dup2(pipe_ends[1], STDERR_FILENO);
        for (const int number : {SIGILL, SIGSEGV}) std::signal(number, SIG_DFL);
        _exit(task());
    }
    close(pipe_ends[1]);
    Ended ended = {};
    std::array<char, 256> part = {};
    for (ssize_t count = 0; (count = read(pipe_ends[0], part.data(), part.size())) > 0;)
        ended.errors.append(part.data(), static_cast<std::size_t>(count));
    close(pipe_ends[0]);
    CHECK(waitpid(child, &ended.status, 0) == child);
    return ended;
}

// Each is asked in a child, which it holds for.
enum class Machine : std::uint8_t { hardware, emulated };

bool prepare(Machine machine) {
    constexpr int request_permission = 0x1023;  // ARCH_REQ_XCOMP_PERM
    constexpr int tile_data = 18;
    if (machine == Machine::hardware)
        return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
    try {
        emulate_amx();
    } catch (const std::logic_error&) {
        return false;
    }
    return __builtin_cpu_supports("avx512f") != 0;
}

bool is_there(Machine machine) {
    const bool there = in_child([&] { return prepare(machine) ? 0 : 1; }).returned(0);
    if (!there && machine == Machine::hardware) MESSAGE("skipped: this process gets no AMX");
    if (!there && machine == Machine::emulated) MESSAGE("skipped: real AMX, or no AVX-512");
    return there;
}

// ---------------------------------------------------------------- products

struct Sources {
    alignas(64) std::uint32_t c[16][16];
    alignas(64) std::uint32_t a[16][16];
    alignas(64) std::uint32_t b[16][16];
};

using Multiply = void(const TileConfiguration* shapes, void* c, const void* a, const void* b);

// C += A B with rows of 64 bytes, in the registers that C functions get their arguments in.
Code assemble_product(AmxOperation operation) {
    Xbyak::CodeGenerator it;
    it.ldtilecfg(it.ptr[it.rdi]);
    it.mov(it.eax, 64);
    it.tileloadd(it.tmm0, it.ptr[it.rsi + it.rax]);
    it.tileloadd(it.tmm1, it.ptr[it.rdx + it.rax]);
    it.nop();  // so that there is more than one run of instructions
    it.tileloaddt1(it.tmm2, it.ptr[it.rcx + it.rax]);
    switch (operation) {
        case tdpbf16ps: it.tdpbf16ps(it.tmm0, it.tmm1, it.tmm2); break;
        case tdpbssd: it.tdpbssd(it.tmm0, it.tmm1, it.tmm2); break;
        case tdpbsud: it.tdpbsud(it.tmm0, it.tmm1, it.tmm2); break;
        case tdpbusd: it.tdpbusd(it.tmm0, it.tmm1, it.tmm2); break;
        default: it.tdpbuud(it.tmm0, it.tmm1, it.tmm2); break;
    }
    it.tilestored(it.ptr[it.rsi + it.rax], it.tmm0);
    it.tilerelease();
    it.ret();
    return Code(std::span(it.getCode(), it.getSize()));
}

// The kinds of numbers that are treated in ways of their own, with any sign and mantissa.
enum class Kind : std::uint8_t { any_bits, near_one, subnormal, tiny, huge, wide, with_nan };

std::uint32_t draw_exponent(Draw& draw, Kind kind) {
    switch (kind) {
        case Kind::near_one: return static_cast<std::uint32_t>(draw.from(120, 134));
        case Kind::subnormal: return draw.once_in(3) ? 0 : 127;
        case Kind::tiny: return static_cast<std::uint32_t>(draw.from(60, 66));    // squares: 2^-126
        case Kind::huge: return static_cast<std::uint32_t>(draw.from(186, 192));  // 2^128
        case Kind::with_nan: return draw.once_in(16) ? 255 : 127;
        default: return static_cast<std::uint32_t>(draw.from(113, 140));
    }
}

std::uint32_t draw_half(Draw& draw, Kind kind) {
    const auto bits = static_cast<std::uint32_t>(draw.from(0, 0xFFFF));
    if (kind == Kind::any_bits) return bits;
    const bool infinite = kind == Kind::with_nan && draw.once_in(40);
    return infinite ? 0x7F80 | (bits & 0x8000) : (bits & 0x807F) | draw_exponent(draw, kind) << 7;
}

void draw_sources(Draw& draw, Kind kind, Sources& sources) {
    const bool from_zero = draw.once_in(3);
    for (auto& row : sources.c) {
        for (std::uint32_t& it : row) {
            it = draw_half(draw, kind) << 16 | static_cast<std::uint32_t>(draw.from(0, 0xFFFF));
            if (kind == Kind::tiny) it &= 0x80FFFFFF;
            if (from_zero) it = 0;
        }
    }
    for (auto* rows : {&sources.a, &sources.b}) {
        for (auto& row : *rows) {
            for (std::uint32_t& it : row) it = draw_half(draw, kind) << 16 | draw_half(draw, kind);
        }
    }
}

// By the functions that the emulator calls, without signals.
void multiply_plainly(AmxOperation operation, const TileConfiguration& shapes, Sources& sources) {
    TileFile file;
    AmxRegisters registers;
    registers.general[8] = 64;
    const AmxAddress address = {.base = 0, .index = 8};
    if (file.configure(shapes) != nullptr) _exit(2);
    const auto step = [&](const AmxInstruction& it, const void* memory) {
        registers.general[0] = reinterpret_cast<std::uint64_t>(memory);
        if (file.step(it, registers) != nullptr) _exit(2);
    };
    step({tileloadd, 6, {0}, address}, sources.c);
    step({tileloadd, 6, {1}, address}, sources.a);
    step({tileloadd, 6, {2}, address}, sources.b);
    step({operation, 5, {0, 1, 2}, {}}, nullptr);
    step({tilestored, 6, {0}, address}, sources.c);
}

bool agree(AmxOperation operation, Multiply* multiply, Draw& draw) {
    const auto kind = static_cast<Kind>(draw.from(0, 6));
    const bool whole = draw.once_in(2);
    const auto extent = [&] { return whole ? 16 : static_cast<int>(draw.from(1, 16)); };
    const TileConfiguration shapes = product_shapes(extent(), extent(), extent());
    Sources run;
    draw_sources(draw, kind, run);
    Sources plain = run;
    multiply(&shapes, run.c, run.a, run.b);
    multiply_plainly(operation, shapes, plain);
    if (std::memcmp(run.c, plain.c, sizeof(run.c)) == 0) return true;
    for (int i = 0; i < 256; ++i) {
        if (run.c[i / 16][i % 16] == plain.c[i / 16][i % 16]) continue;
        std::fprintf(stderr, "%s, kind %d, element %d: 0x%08x, and 0x%08x without signals\n",
                     name_of(operation), static_cast<int>(kind), i, run.c[i / 16][i % 16],
                     plain.c[i / 16][i % 16]);
        break;
    }
    return false;
}

void check_products(Machine machine, int rounds) {
    if (!is_there(machine)) return;
    for (const AmxOperation operation : {tdpbf16ps, tdpbssd, tdpbsud, tdpbusd, tdpbuud}) {
        const Code code = assemble_product(operation);
        const Ended ended = in_child([&] {
            Draw draw(static_cast<std::uint64_t>(operation));
            bool same = prepare(machine);
            for (int i = 0; same && i < rounds; ++i)
                same = agree(operation, code.entry<Multiply>(), draw);
            return same ? 0 : 1;
        });
        CHECK_MESSAGE(ended.returned(0), ended.errors);
    }
}

TEST_CASE("products of the hardware have the bits of the emulator's") {
    check_products(Machine::hardware, 2000);
}

TEST_CASE("code with tiles runs through signals") { check_products(Machine::emulated, 200); }

TEST_CASE("every thread has tiles of its own") {
    if (!is_there(Machine::emulated)) return;
    const Code code = assemble_product(tdpbusd);
    const Ended ended = in_child([&] {
        bool same = prepare(Machine::emulated);
        std::array<bool, 4> results = {};
        std::vector<std::thread> threads;
        for (bool& result : results) {
            threads.emplace_back([&code, &result, &results] {
                Draw draw(static_cast<std::uint64_t>(&result - results.data()));
                result = true;
                for (int i = 0; result && i < 200; ++i)
                    result = agree(tdpbusd, code.entry<Multiply>(), draw);
            });
        }
        for (std::thread& thread : threads) thread.join();
        for (const bool result : results) same = same && result;
        return same ? 0 : 1;
    });
    CHECK_MESSAGE(ended.returned(0), ended.errors);
}

// ---------------------------------------------------------------- what hardware refuses

struct Violation {
    const char* reason;
    TileConfiguration shapes;
    std::vector<std::uint8_t> code;  // behind LDTILECFG
};

const std::vector<std::uint8_t> kZeroTile0 = {0xC4, 0xE2, 0x7B, 0x49, 0xC0};
const std::vector<std::uint8_t> kMultiply = {0xC4, 0xE2, 0x6A, 0x5C, 0xC1};  // 0 += 1 * 2

// `change` makes a configuration for products of 16 x 16 x 16 wrong.
Violation misconfigured(const char* reason, void (*change)(TileConfiguration&)) {
    Violation violation = {reason, product_shapes(16, 16, 16), kMultiply};
    change(violation.shapes);
    return violation;
}

std::vector<Violation> violations() {
    const TileConfiguration good = product_shapes(16, 16, 16);
    return {
        misconfigured("the palette is not 1", [](auto& it) { it.palette = 2; }),
        misconfigured("start_row is not 0", [](auto& it) { it.start_row = 1; }),
        misconfigured("a reserved byte is not 0", [](auto& it) { it.reserved[13] = 1; }),
        misconfigured("a reserved byte is not 0", [](auto& it) { it.row_bytes[8] = 4; }),
        misconfigured("a reserved byte is not 0", [](auto& it) { it.rows[15] = 1; }),
        misconfigured("more than 16 rows", [](auto& it) { it.rows[0] = 17; }),
        misconfigured("more than 64 bytes per row", [](auto& it) { it.row_bytes[0] = 68; }),
        misconfigured("rows without bytes", [](auto& it) { it.row_bytes[7] = 4; }),
        misconfigured("rows without bytes", [](auto& it) { it.rows[7] = 4; }),
        misconfigured("not a multiple of 4",
                      [](auto& it) { it.row_bytes[0] = it.row_bytes[2] = 62; }),
        misconfigured("not a multiple of 4", [](auto& it) { it.row_bytes[1] = 62; }),
        misconfigured("the result and the first source", [](auto& it) { it.rows[0] = 15; }),
        misconfigured("the result and the second source", [](auto& it) { it.row_bytes[0] = 60; }),
        misconfigured("not one row for every 4 bytes", [](auto& it) { it.rows[2] = 15; }),
        misconfigured("gives a tile no rows", [](auto& it) { it.row_bytes[2] = it.rows[2] = 0; }),
        {"not configured", good, {0xC4, 0xE2, 0x78, 0x49, 0xC0, 0xC4, 0xE2, 0x7B, 0x49, 0xC0}},
        {"tiles 0 to 7 only", good, {0xC4, 0x62, 0x7B, 0x49, 0xC0}},
        {"tiles 0 to 7 only", good, {0xC4, 0xE2, 0x2A, 0x5C, 0xC1}},
        {"tiles are the same", good, {0xC4, 0xE2, 0x7A, 0x5C, 0xC1}},
        {"tiles are the same", good, {0xC4, 0xE2, 0x72, 0x5C, 0xC1}},
        {"tiles are the same", good, {0xC4, 0xE2, 0x6A, 0x5C, 0xC0}},
        {"gives a tile no rows", good, {0xC4, 0xE2, 0x7B, 0x49, 0xF8}},
    };
}

using Use = void(const TileConfiguration* shapes);

Code assemble_use(const std::vector<std::uint8_t>& code) {
    Xbyak::CodeGenerator it;
    it.ldtilecfg(it.ptr[it.rdi]);
    it.db(code.data(), code.size());
    it.tilerelease();
    it.ret();
    return Code(std::span(it.getCode(), it.getSize()));
}

Ended use(Machine machine, const Violation& it) {
    const Code code = assemble_use(it.code);
    return in_child([&] {
        if (!prepare(machine)) return 1;
        code.entry<Use>()(&it.shapes);
        return 0;
    });
}

TEST_CASE("the emulator names every violation") {
    for (const Violation& it : violations()) {
        CAPTURE(std::string(it.reason));
        TileFile file;
        const char* reason = file.configure(it.shapes);
        const std::uint8_t* code = it.code.data();
        while (reason == nullptr && code != it.code.data() + it.code.size()) {
            const auto instruction = decode_amx(code);
            REQUIRE(instruction);
            reason = file.step(*instruction, {});
            code += instruction->length;
        }
        REQUIRE(reason != nullptr);
        CHECK(std::string(reason).find(it.reason) != std::string::npos);
    }
}

TEST_CASE("what the emulator refuses, hardware refuses") {
    if (!is_there(Machine::hardware)) return;
    CHECK(use(Machine::hardware, {"", product_shapes(16, 16, 16), kMultiply}).returned(0));
    CHECK(use(Machine::hardware, {"", configuration_of({{3, 62}}), kZeroTile0}).returned(0));
    for (const Violation& it : violations()) {
        CAPTURE(std::string(it.reason));
        if (it.shapes.start_row != 0) continue;  // is for loads that were interrupted
        const Ended ended = use(Machine::hardware, it);
        CHECK((ended.killed_by(SIGILL) || ended.killed_by(SIGSEGV)));
    }
}

TEST_CASE("a violation ends the process with a sentence, as the illegal instruction it is") {
    if (!is_there(Machine::emulated)) return;
    CHECK(use(Machine::emulated, {"", product_shapes(16, 16, 16), kMultiply}).returned(0));
    for (const Violation& it : violations()) {
        CAPTURE(std::string(it.reason));
        const Ended ended = use(Machine::emulated, it);
        if (ended.killed_by(SIGSEGV)) continue;  // a CPU with AMX loads the configuration itself
        CHECK(ended.killed_by(SIGILL));
        CHECK_MESSAGE(ended.errors.find(it.reason) != std::string::npos, ended.errors);
    }
}

TEST_CASE("other illegal instructions go to whom they went before") {
    if (!is_there(Machine::emulated)) return;
    const std::vector<std::uint8_t> ud2 = {0x0F, 0x0B};
    const Code code = assemble_use(ud2);
    const TileConfiguration shapes = product_shapes(16, 16, 16);
    const Ended ended = in_child([&] {
        std::signal(SIGILL, [](int) { _exit(42); });
        emulate_amx();
        code.entry<Use>()(&shapes);
        return 0;
    });
    CHECK(ended.returned(42));
    CHECK(ended.errors.empty());
}

}  // namespace
}  // namespace dlprim::testing
