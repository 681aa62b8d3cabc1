#include "amx/amx_instruction.h"

#include <cstring>

namespace dlprim::testing {
namespace {

enum class Operands : std::uint8_t { none, memory, tile, tile_and_rows, three_tiles };

struct Form {
    AmxOperation operation;
    Operands operands;
    int prefix;  // as VEX counts them: 0 is none, 1 is 66, 2 is F3, 3 is F2
    int opcode;
    const char* name;
};

using Op = AmxOperation;

// In the order of AmxOperation.
constexpr std::array<Form, 11> kForms = {{
    {Op::ldtilecfg, Operands::memory, 0, 0x49, "LDTILECFG"},
    {Op::tilerelease, Operands::none, 0, 0x49, "TILERELEASE"},
    {Op::tilezero, Operands::tile, 3, 0x49, "TILEZERO"},
    {Op::tileloadd, Operands::tile_and_rows, 3, 0x4B, "TILELOADD"},
    {Op::tileloaddt1, Operands::tile_and_rows, 1, 0x4B, "TILELOADDT1"},
    {Op::tilestored, Operands::tile_and_rows, 2, 0x4B, "TILESTORED"},
    {Op::tdpbf16ps, Operands::three_tiles, 2, 0x5C, "TDPBF16PS"},
    {Op::tdpbssd, Operands::three_tiles, 3, 0x5E, "TDPBSSD"},
    {Op::tdpbsud, Operands::three_tiles, 2, 0x5E, "TDPBSUD"},
    {Op::tdpbusd, Operands::three_tiles, 1, 0x5E, "TDPBUSD"},
    {Op::tdpbuud, Operands::three_tiles, 0, 0x5E, "TDPBUUD"},
}};

// The fields of a VEX prefix of three bytes and of the ModRM byte, with the inverted bits righted.
struct Fields {
    int prefix;
    int opcode;
    int mode;
    int reg;
    int rm;
    int third;  // vvvv
    int index_extension;
};

bool is_vex_of_this_map(const std::uint8_t* code) {
    constexpr int map_0f38 = 2;
    constexpr int wide_or_long = 0x84;  // VEX.W and VEX.L, which AMX leaves 0
    return code[0] == 0xC4 && (code[1] & 0x1F) == map_0f38 && (code[2] & wide_or_long) == 0;
}

bool is_opcode(int byte) { return byte == 0x49 || byte == 0x4B || byte == 0x5C || byte == 0x5E; }

Fields read_fields(const std::uint8_t* code) {
    const int extensions = ~code[1];  // R, X and B from the highest bit down
    const int modrm = code[4];
    return {.prefix = code[2] & 3,
            .opcode = code[3],
            .mode = modrm >> 6,
            .reg = (modrm >> 3 & 7) | (extensions >> 7 & 1) << 3,
            .rm = (modrm & 7) | (extensions >> 5 & 1) << 3,
            .third = ~code[2] >> 3 & 15,
            .index_extension = (extensions >> 6 & 1) << 3};
}

bool fits(const Form& form, const Fields& it) {
    if (form.opcode != it.opcode || form.prefix != it.prefix) return false;
    const bool registers = it.mode == 3;
    if (form.operands == Operands::three_tiles) return registers;
    if (it.third != 0) return false;
    switch (form.operands) {
        case Operands::none: return registers && it.reg == 0 && it.rm == 0;
        case Operands::memory: return !registers && it.reg == 0;
        case Operands::tile: return registers && it.rm == 0;
        default: return !registers && (it.rm & 7) == 4;  // only with a SIB byte
    }
}

// `code` is behind the ModRM byte; returns the address and how many bytes it takes.
std::pair<AmxAddress, int> read_address(const std::uint8_t* code, const Fields& it) {
    AmxAddress address;
    int length = 0;
    int displacement = it.mode == 1 ? 1 : it.mode == 2 ? 4 : 0;
    address.base = it.rm;
    if ((it.rm & 7) == 4) {
        const int sib = code[length++];
        address.scale = 1 << (sib >> 6);
        const int index = (sib >> 3 & 7) | it.index_extension;
        if (index != 4) address.index = index;
        address.base = (sib & 7) | (it.rm & 8);
    }
    if ((address.base & 7) == 5 && it.mode == 0) {
        address.base = (it.rm & 7) == 4 ? AmxAddress::kNone : AmxAddress::kNextInstruction;
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
    constexpr int up_to_modrm = 5;
    if (!is_vex_of_this_map(code) || !is_opcode(code[3])) return std::nullopt;
    const Fields it = read_fields(code);
    for (const Form& form : kForms) {
        if (!fits(form, it)) continue;
        AmxInstruction instruction = {form.operation, up_to_modrm, {it.reg, it.rm, it.third}, {}};
        if (it.mode != 3) {
            const auto [address, length] = read_address(code + up_to_modrm, it);
            instruction.address = address;
            instruction.length += length;
            instruction.tiles = {it.reg, 0, 0};
        }
        return instruction;
    }
    return std::nullopt;
}

}  // namespace dlprim::testing
