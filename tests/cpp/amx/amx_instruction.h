// The instructions of AMX that kernels are made of, decoded from their bytes: what the emulation of
// a machine with tiles steps through, and what tests hold the assembler's encodings to.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

namespace dlprim::testing {

enum class AmxOperation : std::uint8_t {
    ldtilecfg,
    tilerelease,
    tilezero,
    tileloadd,
    tileloaddt1,
    tilestored,
    tdpbf16ps,
    tdpbssd,
    tdpbsud,
    tdpbusd,
    tdpbuud
};

const char* name_of(AmxOperation operation);

// base + index * scale + displacement, of general registers by their number.
struct AmxAddress {
    static constexpr int kNone = -1;
    static constexpr int kNextInstruction = -2;  // as a base
    int base = kNone;
    int index = kNone;
    int scale = 1;
    std::int32_t displacement = 0;
};

struct AmxInstruction {
    AmxOperation operation;
    int length = 0;  // bytes
    // As encoded, so up to 15: the result and the two sources, or the first alone.
    std::array<int, 3> tiles = {};
    AmxAddress address;
};

// Nothing where `code` begins with another instruction; reads no byte beyond the instruction.
std::optional<AmxInstruction> decode_amx(const std::uint8_t* code);

// Of PREFETCHT0 and its kin, or 0 where `code` begins with another instruction.
int prefetch_length(const std::uint8_t* code);

}  // namespace dlprim::testing
