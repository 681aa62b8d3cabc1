#include "jit/isa.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <optional>
#include <stdexcept>

#include <xbyak/xbyak_util.h>

namespace dlprim {
namespace {

using Xbyak::util::Cpu;

constexpr std::array<std::string_view, kIsaLevels> kNames = {
    "scalar", "avx2", "avx2_vnni", "avx2_vnni_int8", "avx512", "avx512_vnni", "avx512_bf16", "amx"};

const Cpu& this_cpu() {
    static const Cpu cpu;  // checks OSXSAVE and XCR0 before it reports any AVX feature
    return cpu;
}

// The same level, or avx2 or avx2_vnni in place of one above them that this CPU skips.
Isa without_gaps(Isa isa) {
    if (isa != Isa::avx2_vnni && isa != Isa::avx2_vnni_int8) return isa;
    if (!this_cpu().has(Cpu::tAVX_VNNI)) return Isa::avx2;
    return this_cpu().has(Cpu::tAVX_VNNI_INT8) ? isa : Isa::avx2_vnni;
}

// Linux lets a process use AMX's tiles when it has asked, because they make its threads' saved
// state larger; threads and children are included.
bool may_use_tiles() {
    constexpr int kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
    constexpr int kTileData = 18;               // a number of a state component, XCR0's bit
    return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

std::optional<Isa> emulated;

Isa detect() {
    if (emulated) return *emulated;
    const Cpu& cpu = this_cpu();
    const auto avx512 = Cpu::tAVX512F | Cpu::tAVX512BW | Cpu::tAVX512DQ | Cpu::tAVX512VL;
    if (!cpu.has(Cpu::tAVX2 | Cpu::tFMA | Cpu::tF16C)) return Isa::scalar;
    if (!cpu.has(avx512)) return without_gaps(Isa::avx2_vnni_int8);
    if (!cpu.has(Cpu::tAVX512_VNNI)) return Isa::avx512;
    if (!cpu.has(Cpu::tAVX512_BF16)) return Isa::avx512_vnni;
    const auto tiles = Cpu::tAMX_TILE | Cpu::tAMX_BF16 | Cpu::tAMX_INT8;
    return cpu.has(tiles) ? Isa::amx : Isa::avx512_bf16;
}

Isa lowered(Isa detected) {
    const char* limit = std::getenv("DLPRIM_MAX_ISA");
    if (limit == nullptr || *limit == '\0') return detected;
    try {
        return without_gaps(std::min(detected, parse_isa(limit)));
    } catch (const std::invalid_argument& error) {
        throw std::invalid_argument(std::string("environment variable DLPRIM_MAX_ISA: ") +
                                    error.what());
    }
}

}  // namespace

std::string_view name_of(Isa isa) { return kNames.at(static_cast<std::size_t>(isa)); }

Isa parse_isa(const std::string& name) {
    for (std::size_t level = 0; level < kNames.size(); ++level) {
        if (name == kNames[level]) return static_cast<Isa>(level);
    }
    throw std::invalid_argument("'" + name +
                                "' is not an ISA level; expected scalar, avx2, avx2_vnni, "
                                "avx2_vnni_int8, avx512, avx512_vnni, avx512_bf16 or amx");
}

Isa detected_isa() {
    static const Isa isa = detect();
    return isa;
}

void emulate_isa(Isa isa) { emulated = isa; }

Isa usable_isa() {
    static const Isa isa = [] {
        const Isa wanted = lowered(detected_isa());
        const bool refused = wanted == Isa::amx && !emulated && !may_use_tiles();
        return refused ? Isa::avx512_bf16 : wanted;
    }();
    return isa;
}

std::string_view reason_for_lower_isa() {
    return lowered(detected_isa()) == usable_isa() ? "DLPRIM_MAX_ISA lowered it"
                                                   : "the operating system refused AMX's tiles";
}

Isa usable_isa(Isa limit) { return without_gaps(std::min(limit, usable_isa())); }

}  // namespace dlprim
