#include "amx/tile_file.h"

#include <cstring>

namespace dlprim::testing {
namespace {

const char* refuse(const TileConfiguration& it) {
    if (it.palette != 1) return "the palette is not 1";
    if (it.start_row != 0) return "start_row is not 0";
    for (const std::uint8_t byte : it.reserved) {
        if (byte != 0) return "a reserved byte is not 0";
    }
    for (int i = 0; i < 16; ++i) {
        if (i >= 8 && (it.rows[i] != 0 || it.row_bytes[i] != 0)) return "a reserved byte is not 0";
        if (it.rows[i] > Tile::kMostRows) return "a tile has more than 16 rows";
        if (it.row_bytes[i] > Tile::kMostRowBytes) return "a tile has more than 64 bytes per row";
        if ((it.rows[i] == 0) != (it.row_bytes[i] == 0))
            return "a tile has rows without bytes, or the reverse";
    }
    return nullptr;
}

const char* refuse_product(const Tile& result, const Tile& a, const Tile& b) {
    if (&result == &a || &a == &b || &result == &b) return "two of its three tiles are the same";
    if (result.row_bytes % 4 != 0 || a.row_bytes % 4 != 0 || b.row_bytes % 4 != 0)
        return "a tile's bytes per row are not a multiple of 4";
    if (result.rows != a.rows) return "the result and the first source differ in rows";
    if (result.row_bytes != b.row_bytes)
        return "the result and the second source differ in bytes per row";
    if (a.row_bytes != 4 * b.rows)
        return "the second source has not one row for every 4 bytes in a row of the first";
    return nullptr;
}

std::uint64_t start_of(const AmxInstruction& instruction, const AmxRegisters& registers) {
    const AmxAddress& it = instruction.address;
    std::uint64_t base = 0;
    if (it.base == AmxAddress::kNextInstruction)
        base = registers.instruction + static_cast<std::uint64_t>(instruction.length);
    if (it.base >= 0) base = registers.general[static_cast<std::size_t>(it.base)];
    return base + static_cast<std::uint64_t>(std::int64_t{it.displacement});
}

// Between rows; without an index they are all the same one.
std::uint64_t stride_of(const AmxAddress& it, const AmxRegisters& registers) {
    if (it.index == AmxAddress::kNone) return 0;
    return registers.general[static_cast<std::size_t>(it.index)] *
           static_cast<std::uint64_t>(it.scale);
}

}  // namespace

const char* TileFile::configure(const TileConfiguration& configuration) {
    if (const char* reason = refuse(configuration)) return reason;
    for (std::size_t i = 0; i < tiles_.size(); ++i)
        tiles_[i] = {configuration.rows[i], configuration.row_bytes[i]};
    configured_ = true;
    return nullptr;
}

const char* TileFile::refuse_use(const AmxInstruction& instruction, std::size_t tiles) const {
    if (!configured_) return "the tiles are not configured";
    for (std::size_t i = 0; i < tiles; ++i) {
        if (instruction.tiles[i] > 7) return "there are tiles 0 to 7 only";
        if (tile(instruction.tiles[i]).rows == 0) return "the configuration gives a tile no rows";
    }
    return nullptr;
}

const char* TileFile::multiply(const AmxInstruction& instruction) {
    if (const char* reason = refuse_use(instruction, 3)) return reason;
    Tile& result = tiles_[static_cast<std::size_t>(instruction.tiles[0])];
    const Tile& a = tile(instruction.tiles[1]);
    const Tile& b = tile(instruction.tiles[2]);
    if (const char* reason = refuse_product(result, a, b)) return reason;
    using enum AmxOperation;
    const AmxOperation it = instruction.operation;
    if (it == tdpbf16ps) {
        add_bf16_product(result, a, b);
    } else {
        add_int8_product(result, a, b, it == tdpbssd || it == tdpbsud,
                         it == tdpbssd || it == tdpbusd);
    }
    return nullptr;
}

const char* TileFile::step(const AmxInstruction& instruction, const AmxRegisters& registers) {
    using enum AmxOperation;
    const AmxOperation it = instruction.operation;
    const std::uint64_t start = start_of(instruction, registers);
    if (it == ldtilecfg) {
        TileConfiguration configuration;
        std::memcpy(&configuration, reinterpret_cast<const void*>(start), sizeof(configuration));
        return configure(configuration);
    }
    if (it == tilerelease) {
        release();
        return nullptr;
    }
    if (it >= tdpbf16ps) return multiply(instruction);
    if (const char* reason = refuse_use(instruction, 1)) return reason;
    Tile& tile = tiles_[static_cast<std::size_t>(instruction.tiles[0])];
    if (it != tilestored) tile = {tile.rows, tile.row_bytes};
    const std::uint64_t stride = stride_of(instruction.address, registers);
    const auto bytes = static_cast<std::size_t>(tile.row_bytes);
    std::uint64_t row = start;
    for (int i = 0; i < tile.rows && it != tilezero; ++i, row += stride) {
        auto* memory = reinterpret_cast<void*>(row);
        std::memcpy(it == tilestored ? memory : tile.bytes[i],
                    it == tilestored ? tile.bytes[i] : memory, bytes);
    }
    return nullptr;
}

}  // namespace dlprim::testing
