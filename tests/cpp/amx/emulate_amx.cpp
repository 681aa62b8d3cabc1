#include "amx/emulate_amx.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string_view>

#include <cpuid.h>
#include <ucontext.h>

#include "amx/tile_file.h"
#include "jit/isa.h"

namespace dlprim::testing {
namespace {

constexpr unsigned kTileConfiguration = 17;  // components of the state that XSAVE saves
constexpr unsigned kTileData = 18;

thread_local constinit TileFile tile_file;
// What the tiles of this thread were configured from where the CPU keeps the configuration.
thread_local constinit TileConfiguration kept_by_cpu = {};

struct sigaction action_before;
unsigned configuration_offset = 0;  // in the saved state

template <typename T>
T read_state(const ucontext_t& context, unsigned offset) {
    T value;
    std::memcpy(&value, reinterpret_cast<const char*>(context.uc_mcontext.fpregs) + offset,
                sizeof(value));
    return value;
}

// Permission is asked for tiles, not for their configuration: on a CPU with AMX LDTILECFG and
// TILERELEASE are legal all the same, and the configuration is among the registers that the signal
// has saved.
bool cpu_configures(const ucontext_t& context) {
    constexpr std::uint32_t extended = 0x46505853;  // FP_XSTATE_MAGIC1
    return read_state<std::uint32_t>(context, 464) == extended &&
           (read_state<std::uint64_t>(context, 472) >> kTileConfiguration & 1) != 0;
}

// A configuration that is loaded again unchanged is not seen: the tiles stay as they are then.
const char* follow_cpu(const ucontext_t& context) {
    TileConfiguration found = {};  // stays so where released
    if ((read_state<std::uint64_t>(context, 512) >> kTileConfiguration & 1) != 0)
        found = read_state<TileConfiguration>(context, configuration_offset);
    if (std::memcmp(&found, &kept_by_cpu, sizeof(found)) == 0) return nullptr;
    kept_by_cpu = found;
    if (found.palette != 0) return tile_file.configure(found);
    tile_file.release();
    return nullptr;
}

AmxRegisters read_registers(const greg_t* saved) {
    constexpr std::array by_number = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
                                      REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
                                      REG_R12, REG_R13, REG_R14, REG_R15};
    AmxRegisters registers;
    for (std::size_t i = 0; i < by_number.size(); ++i)
        registers.general[i] = static_cast<std::uint64_t>(saved[by_number[i]]);
    registers.instruction = static_cast<std::uint64_t>(saved[REG_RIP]);
    return registers;
}

const std::uint8_t* code_at(const AmxRegisters& registers) {
    return reinterpret_cast<const std::uint8_t*>(registers.instruction);
}

void complain(const AmxInstruction& it, std::uint64_t address, const char* reason) {
    char line[200];
    const int length =
        std::snprintf(line, sizeof(line), "emulated %s of tiles %d, %d, %d at 0x%llx: %s.\n",
                      name_of(it.operation), it.tiles[0], it.tiles[1], it.tiles[2],
                      static_cast<unsigned long long>(address), reason);
    if (write(STDERR_FILENO, line, static_cast<std::size_t>(length)) < 0) std::abort();
}

// The whole run of instructions of AMX that begins here, and the prefetches between them: a signal
// takes longer than any. False where the first one is illegal.
bool run_from(AmxRegisters& registers, bool configures, const char* reason) {
    for (bool first = true;; first = false) {
        const auto instruction = decode_amx(code_at(registers));
        if (!instruction || (configures && instruction->operation <= AmxOperation::tilerelease))
            return !first;
        if (reason == nullptr) reason = tile_file.step(*instruction, registers);
        if (reason != nullptr && first) complain(*instruction, registers.instruction, reason);
        if (reason != nullptr) return !first;
        registers.instruction += static_cast<std::uint64_t>(instruction->length);
        while (const int length = prefetch_length(code_at(registers)))
            registers.instruction += static_cast<std::uint64_t>(length);
    }
}

extern "C" void emulate_illegal_instruction(int, siginfo_t*, void* context) {
    auto& interrupted = *static_cast<ucontext_t*>(context);
    const bool configures = cpu_configures(interrupted);
    AmxRegisters registers = read_registers(interrupted.uc_mcontext.gregs);
    // What stays illegal is executed once more, for the handler that was there before.
    if (!run_from(registers, configures, configures ? follow_cpu(interrupted) : nullptr))
        sigaction(SIGILL, &action_before, nullptr);
    interrupted.uc_mcontext.gregs[REG_RIP] = static_cast<greg_t>(registers.instruction);
}

}  // namespace

void emulate_amx() {
    constexpr int get_permission = 0x1022;  // ARCH_GET_XCOMP_PERM
    std::uint64_t permitted = 0;
    if (syscall(SYS_arch_prctl, get_permission, &permitted) == 0 &&
        (permitted >> kTileData & 1) != 0)
        throw std::logic_error("AMX cannot be emulated: this process has asked for the real one");
    unsigned unused = 0;
    __get_cpuid_count(0xD, kTileConfiguration, &unused, &configuration_offset, &unused, &unused);
    struct sigaction action = {};
    action.sa_sigaction = emulate_illegal_instruction;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGILL, &action, &action_before);
}

bool emulates_amx() {
    const char* asked = std::getenv("DLPRIM_EMULATE_AMX");
    return asked != nullptr && std::string_view(asked) == "1";
}

void emulate_amx_where_asked() {
    if (!emulates_amx()) return;
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx512bf16")) {
        std::puts("DLPRIM_EMULATE_AMX: skipped, as this machine lacks AVX512_BF16.");
        std::exit(kSkipped);
    }
    emulate_amx();
    emulate_isa(Isa::amx);
}

}  // namespace dlprim::testing
