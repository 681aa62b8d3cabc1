// The instruction sets that kernels are generated for, as an ordered list: a higher level is the
// better one, so "at most this ISA" is a comparison. It implies every lower one but those between
// avx2 and avx512, the dot products of bytes with 256-bit registers, which a CPU has or has not.
// Detection trusts CPUID only together with XCR0 (hypervisors advertise features that the operating
// system does not save), and DLPRIM_MAX_ISA lowers the result, which is how every level is tested
// on one machine.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace dlprim {

enum class Isa : std::uint8_t {
    scalar,
    avx2,
    avx2_vnni,       // vpdpbusd: uint8 times int8
    avx2_vnni_int8,  // vpdpbssd, vpdpbuud: int8 times int8, uint8 times uint8
    avx512,
    avx512_vnni,
    avx512_bf16,
    amx
};
inline constexpr int kIsaLevels = 8;

std::string_view name_of(Isa isa);

// Throws std::invalid_argument that lists the accepted names.
Isa parse_isa(const std::string& name);

// The highest level that this CPU runs and that kernels exist for.
Isa detected_isa();

// Makes detected_isa() say `isa`, as somebody emulates what the CPU does not run of it: for tests.
// To be called before the first detected_isa(); neither the CPU nor the operating system is asked
// then.
void emulate_isa(Isa isa);

// detected_isa() lowered to DLPRIM_MAX_ISA where that is set, and below amx where the operating
// system refuses its tiles, for which a process that may use them asks; found once per process.
// Throws std::invalid_argument when DLPRIM_MAX_ISA names no ISA level.
Isa usable_isa();

// Which of the two made usable_isa() lower than detected_isa(), as a clause.
std::string_view reason_for_lower_isa();

// The highest level at most `limit` and usable_isa() that this CPU runs.
Isa usable_isa(Isa limit);

// Dot products of four unsigned with four signed bytes.
constexpr bool multiplies_bytes(Isa isa) {
    return isa >= Isa::avx512_vnni || (isa >= Isa::avx2_vnni && isa < Isa::avx512);
}

// Vector registers and their width at an ISA level; scalar has none.
struct VectorFile {
    int registers;
    int bytes;
};

constexpr VectorFile vector_file(Isa isa) {
    if (isa >= Isa::avx512) return {32, 64};
    if (isa >= Isa::avx2) return {16, 32};
    return {0, 0};
}

}  // namespace dlprim
