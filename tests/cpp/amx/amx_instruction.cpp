#include "amx/amx_instruction.h"

#include <cstring>

namespace dlprim::testing {
namespace {

struct Form {
    AmxOperation operation;
    int prefix;  // as VEX counts them: 0 is none, 1 is 66, 2 is F3, 3 is F2
    int opcode;
    bool has_memory;
    int modrm_mask;
    int modrm;  // under that mask
    const char* name;
};

using Op = AmxOperation;

// In the order of AmxOperation. Loads and stores of tiles have a SIB byte, which is rm 4.
constexpr std::array<Form, 11> kForms = {{
    {Op::ldtilecfg, 0, 0x49, true, 0x38, 0x00, "LDTILECFG"},
    {Op::tilerelease, 0, 0x49, false, 0xFF, 0xC0, "TILERELEASE"},
    {Op::tilezero, 3, 0x49, false, 0x07, 0x00, "TILEZERO"},
    {Op::tileloadd, 3, 0x4B, true, 0x07, 0x04, "TILELOADD"},
    {Op::tileloaddt1, 1, 0x4B, true, 0x07, 0x04, "TILELOADDT1"},
    {Op::tilestored, 2, 0x4B, true, 0x07, 0x04, "TILESTORED"},
    {Op::tdpbf16ps, 2, 0x5C, false, 0, 0, "TDPBF16PS"},
    {Op::tdpbssd, 3, 0x5E, false, 0, 0, "TDPBSSD"},
    {Op::tdpbsud, 2, 0x5E, false, 0, 0, "TDPBSUD"},
    {Op::tdpbusd, 1, 0x5E, false, 0, 0, "TDPBUSD"},
    {Op::tdpbuud, 0, 0x5E, false, 0, 0, "TDPBUUD"},
}};

// The bits that prefixes add to the numbers of registers, as 8 or 0.
struct Extensions {
    int reg;
    int index;
    int rm;
};

// What has it also has a ModRM byte.
bool has_vex_of_this_map(const std::uint8_t* code) {
    constexpr int map_0f38 = 2;
    constexpr int wide_or_long = 0x84;  // VEX.W and VEX.L, which AMX leaves 0
    return code[0] == 0xC4 && (code[1] & 0x1F) == map_0f38 && (code[2] & wide_or_long) == 0;
}

// From the ModRM byte on; returns the address and how many bytes it takes.
std::pair<AmxAddress, int> read_address(const std::uint8_t* code, const Extensions& extensions) {
    AmxAddress address;
    const int mode = code[0] >> 6;
    const bool has_sib = (code[0] & 7) == 4;
    int displacement = mode == 1 ? 1 : mode == 2 ? 4 : 0;
    int length = 1;
    int base = code[0] & 7;
    if (has_sib) {
        const int sib = code[length++];
        const int index = (sib >> 3 & 7) | extensions.index;
        address.scale = 1 << (sib >> 6);
        if (index != 4) address.index = index;
        base = sib & 7;
    }
    address.base = base | extensions.rm;
    if (base == 5 && mode == 0) {
        address.base = has_sib ? AmxAddress::kNone : AmxAddress::kNextInstruction;
        displacement = 4;
    }
    if (displacement == 1) address.displacement = static_cast<std::int8_t>(code[length]);
    if (displacement == 4) std::memcpy(&address.displacement, code + length, 4);
    return {address, length + displacement};
}

}  // namespace

const char* name_of(AmxOperation operation) {
    return kForms[static_cast<std::size_t>(operation)].name;
}

std::optional<AmxInstruction> decode_amx(const std::uint8_t* code) {
    if (!has_vex_of_this_map(code)) return std::nullopt;
    const int inverted = ~code[1];
    const Extensions extensions = {inverted >> 4 & 8, inverted >> 3 & 8, inverted >> 2 & 8};
    const int modrm = code[4];
    const int third = ~code[2] >> 3 & 15;
    for (const Form& form : kForms) {
        const bool multiplies = form.operation >= Op::tdpbf16ps;
        if (form.prefix != (code[2] & 3) || form.opcode != code[3] ||
            form.has_memory != (modrm < 0xC0) || (modrm & form.modrm_mask) != form.modrm ||
            (third != 0 && !multiplies))
            continue;
        AmxInstruction it = {form.operation, 5, {(modrm >> 3 & 7) | extensions.reg}, {}};
        if (multiplies) it.tiles = {it.tiles[0], (modrm & 7) | extensions.rm, third};
        if (form.has_memory) {
            const auto [address, length] = read_address(code + 4, extensions);
            it.address = address;
            it.length = 4 + length;
        }
        return it;
    }
    return std::nullopt;
}

int prefetch_length(const std::uint8_t* code) {
    const int rex = (code[0] & 0xF0) == 0x40 ? 1 : 0;
    const bool is_prefetch = code[rex] == 0x0F && code[rex + 1] == 0x18 && code[rex + 2] < 0xC0;
    return is_prefetch ? rex + 2 + read_address(code + rex + 2, {}).second : 0;
}

}  // namespace dlprim::testing
