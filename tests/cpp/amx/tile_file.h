// The tiles of one thread and what instructions of AMX do to them, with everything that hardware
// checks. It runs inside a signal handler: nothing here allocates or throws.
#pragma once

#include <array>
#include <cstdint>

#include "amx/amx_instruction.h"
#include "amx/tile_product.h"

namespace dlprim::testing {

// General registers by the numbers that encodings have, and where the instruction begins.
struct AmxRegisters {
    std::array<std::uint64_t, 16> general = {};
    std::uint64_t instruction = 0;
};

class TileFile {
public:
    // Both return null, or what is wrong as the end of a sentence, and leave the tiles as they
    // were.
    const char* step(const AmxInstruction& instruction, const AmxRegisters& registers);

    // From the 64 bytes that LDTILECFG reads: rows and bytes per row of each tile, all zeroed.
    const char* configure(const std::uint8_t* configuration);

    void release() { configured_ = false; }

    const Tile& tile(int number) const { return tiles_[static_cast<std::size_t>(number)]; }

private:
    const char* multiply(const AmxInstruction& instruction);
    const char* refuse_use(const AmxInstruction& instruction, int tiles) const;
    const char* refuse_product(const AmxInstruction& instruction) const;
    Tile& used(const AmxInstruction& instruction, std::size_t operand) {
        return tiles_[static_cast<std::size_t>(instruction.tiles[operand])];
    }
    const Tile& used(const AmxInstruction& instruction, std::size_t operand) const {
        return tiles_[static_cast<std::size_t>(instruction.tiles[operand])];
    }

    bool configured_ = false;
    std::array<Tile, 8> tiles_ = {};
};

}  // namespace dlprim::testing
