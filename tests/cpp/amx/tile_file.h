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

// The operand of LDTILECFG.
struct TileConfiguration {
    std::uint8_t palette;
    std::uint8_t start_row;
    std::uint8_t reserved[14];
    std::uint16_t row_bytes[16];
    std::uint8_t rows[16];
};
static_assert(sizeof(TileConfiguration) == 64);

class TileFile {
public:
    // Both return null, or what is wrong as the end of a sentence, and leave the tiles as they
    // were.
    const char* step(const AmxInstruction& instruction, const AmxRegisters& registers);

    // All tiles are zero then.
    const char* configure(const TileConfiguration& configuration);

    void release() { configured_ = false; }

    const Tile& tile(int number) const { return tiles_[static_cast<std::size_t>(number)]; }

private:
    const char* refuse_use(const AmxInstruction& instruction, std::size_t tiles) const;
    const char* multiply(const AmxInstruction& instruction);

    bool configured_ = false;
    std::array<Tile, 8> tiles_ = {};
};

}  // namespace dlprim::testing
