#include "amx/emulate_amx.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
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

using Configuration = std::array<std::uint8_t, 64>;

thread_local constinit TileFile tile_file;
// What the tiles of this thread were configured from where the CPU keeps the configuration.
thread_local constinit Configuration kept_by_cpu = {};

struct sigaction action_before;
unsigned configuration_offset = 0;  // in the saved state

// Permission is asked for tiles, not for their configuration: on a CPU with AMX LDTILECFG and
// TILERELEASE are legal all the same, and the configuration is among the registers that the signal
// has saved.
struct SavedState {
    explicit SavedState(const ucontext_t& context)
        : bytes(reinterpret_cast<const std::uint8_t*>(context.uc_mcontext.fpregs)) {}

    bool cpu_configures() const {
        constexpr std::uint32_t extended = 0x46505853;  // FP_XSTATE_MAGIC1
        return read<std::uint32_t>(464) == extended &&
               (read<std::uint64_t>(472) >> kTileConfiguration & 1) != 0;
    }

    // All zero when released.
    Configuration configuration() const {
        Configuration found = {};
        if ((read<std::uint64_t>(512) >> kTileConfiguration & 1) != 0)
            std::memcpy(found.data(), bytes + configuration_offset, found.size());
        return found;
    }

    template <typename T>
    T read(int offset) const {
        T value;
        std::memcpy(&value, bytes + offset, sizeof(value));
        return value;
    }

    const std::uint8_t* bytes;
};

// A configuration that is loaded again unchanged is not seen: the tiles stay as they are then.
const char* follow(const Configuration& configuration) {
    if (configuration == kept_by_cpu) return nullptr;
    kept_by_cpu = configuration;
    if (configuration == Configuration{}) {
        tile_file.release();
        return nullptr;
    }
    return tile_file.configure(configuration.data());
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

void complain(const AmxInstruction& it, std::uint64_t address, const char* reason) {
    char line[200];
    const int length =
        std::snprintf(line, sizeof(line), "emulated %s of tiles %d, %d, %d at 0x%llx: %s.\n",
                      name_of(it.operation), it.tiles[0], it.tiles[1], it.tiles[2],
                      static_cast<unsigned long long>(address), reason);
    if (write(STDERR_FILENO, line, static_cast<std::size_t>(length)) < 0) std::abort();
}

// The whole run of instructions of AMX that begins here: a signal takes longer than any of them.
// False where the first one is illegal.
bool run_from(AmxRegisters& registers, bool cpu_configures, const char* reason) {
    for (bool first = true;; first = false) {
        const auto instruction =
            decode_amx(reinterpret_cast<const std::uint8_t*>(registers.instruction));
        if (!instruction) return !first;
        const bool configures = instruction->operation <= AmxOperation::tilerelease;
        if (configures && cpu_configures) return !first;
        if (reason == nullptr) reason = tile_file.step(*instruction, registers);
        if (reason != nullptr && first) complain(*instruction, registers.instruction, reason);
        if (reason != nullptr) return !first;
        registers.instruction += static_cast<std::uint64_t>(instruction->length);
    }
}

extern "C" void emulate_illegal_instruction(int, siginfo_t*, void* context) {
    auto& interrupted = *static_cast<ucontext_t*>(context);
    greg_t* saved = interrupted.uc_mcontext.gregs;
    const SavedState state(interrupted);
    AmxRegisters registers = read_registers(saved);
    const char* reason = state.cpu_configures() ? follow(state.configuration()) : nullptr;
    // What stays illegal is executed once more, for the handler that was there before.
    if (!run_from(registers, state.cpu_configures(), reason))
        sigaction(SIGILL, &action_before, nullptr);
    saved[REG_RIP] = static_cast<greg_t>(registers.instruction);
}

bool has_permission() {
    constexpr int get_permission = 0x1022;  // ARCH_GET_XCOMP_PERM
    std::uint64_t components = 0;
    const long error = syscall(SYS_arch_prctl, get_permission, &components);
    return error == 0 && (components >> kTileData & 1) != 0;
}

}  // namespace

void emulate_amx() {
    if (has_permission())
        throw std::logic_error("AMX cannot be emulated: this process has asked for the real one");
    unsigned size = 0;
    unsigned unused = 0;
    __get_cpuid_count(0xD, kTileConfiguration, &size, &configuration_offset, &unused, &unused);
    struct sigaction action = {};
    action.sa_sigaction = emulate_illegal_instruction;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGILL, &action, &action_before);
}

void emulate_amx_where_asked() {
    const char* asked = std::getenv("DLPRIM_EMULATE_AMX");
    if (asked == nullptr || std::string_view(asked) != "1") return;
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx512bf16")) {
        std::printf(
            "DLPRIM_EMULATE_AMX: skipped, as this machine has no AVX512_BF16, which the "
            "level of AMX includes.\n");
        std::exit(kSkipped);
    }
    emulate_amx();
    emulate_isa(Isa::amx);
}

}  // namespace dlprim::testing
