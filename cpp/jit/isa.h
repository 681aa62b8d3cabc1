// The instruction sets that kernels are generated for, as an ordered list: a higher level implies
// every lower one, so "at most this ISA" is a comparison. Detection trusts CPUID only together
// with XCR0 (hypervisors advertise features that the operating system does not save), and
// DLPRIM_MAX_ISA lowers the result, which is how every level is tested on one machine.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace dlprim {

enum class Isa : std::uint8_t { scalar, avx2, avx512, avx512_vnni, avx512_bf16, amx };

std::string_view name_of(Isa isa);

// Throws std::invalid_argument that lists the accepted names.
Isa parse_isa(const std::string& name);

// The highest level that this CPU and operating system run and that kernels exist for.
Isa detected_isa();

// Makes detected_isa() say `isa`, as somebody emulates what the CPU does not run of it: for tests.
// To be called before the first detected_isa(), which then asks neither the CPU nor the kernel.
void emulate_isa(Isa isa);

// detected_isa() lowered to DLPRIM_MAX_ISA where that is set; read once per process.
// Throws std::invalid_argument when DLPRIM_MAX_ISA names no ISA level.
Isa usable_isa();

// Vector registers and their width at an ISA level; scalar has none.
struct VectorFile {
    int registers;
    int bytes;
};

constexpr VectorFile vector_file(Isa isa) {
    if (isa >= Isa::avx512) return {32, 64};
    if (isa == Isa::avx2) return {16, 32};
    return {0, 0};
}

}  // namespace dlprim
