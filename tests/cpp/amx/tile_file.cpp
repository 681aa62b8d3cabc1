#include "amx/tile_file.h"

#include <cstring>

namespace dlprim::testing {
namespace {

// Where the 64 bytes of a configuration have what.
constexpr int kReservedFrom = 2;
constexpr int kRowBytesFrom = 16;
constexpr int kRowsFrom = 48;
constexpr int kEnd = 64;

bool all_zero(const std::uint8_t* bytes, int from, int to) {
    for (int i = from; i < to; ++i) {
        if (bytes[i] != 0) return false;
    }
    return true;
}

int row_bytes_of(const std::uint8_t* configuration, int tile) {
    const std::uint8_t* at = configuration + kRowBytesFrom + 2 * tile;
    return at[0] | at[1] << 8;
}

int rows_of(const std::uint8_t* configuration, int tile) { return configuration[kRowsFrom + tile]; }

const char* refuse(const std::uint8_t* configuration) {
    constexpr int tiles = 8;
    if (configuration[0] != 1) return "the palette is not 1";
    if (configuration[1] != 0) return "start_row is not 0";
    if (!all_zero(configuration, kReservedFrom, kRowBytesFrom) ||
        !all_zero(configuration, kRowBytesFrom + 2 * tiles, kRowsFrom) ||
        !all_zero(configuration, kRowsFrom + tiles, kEnd))
        return "a reserved byte is not 0";
    for (int i = 0; i < tiles; ++i) {
        const int rows = rows_of(configuration, i);
        const int row_bytes = row_bytes_of(configuration, i);
        if (rows > Tile::kMostRows) return "a tile has more than 16 rows";
        if (row_bytes > Tile::kMostRowBytes) return "a tile has more than 64 bytes per row";
        if ((rows == 0) != (row_bytes == 0)) return "a tile has rows without bytes, or the reverse";
    }
    return nullptr;
}

std::uint64_t register_at(const AmxRegisters& registers, int number) {
    return number == AmxAddress::kNone ? 0 : registers.general[static_cast<std::size_t>(number)];
}

std::uint64_t start_of(const AmxInstruction& instruction, const AmxRegisters& registers) {
    const AmxAddress& it = instruction.address;
    const std::uint64_t base =
        it.base == AmxAddress::kNextInstruction
            ? registers.instruction + static_cast<std::uint64_t>(instruction.length)
            : register_at(registers, it.base);
    return base + static_cast<std::uint64_t>(std::int64_t{it.displacement});
}

std::uint64_t stride_of(const AmxInstruction& instruction, const AmxRegisters& registers) {
    const AmxAddress& it = instruction.address;
    return register_at(registers, it.index) * static_cast<std::uint64_t>(it.scale);
}

void load(Tile& tile, std::uint64_t row, std::uint64_t stride) {
    std::memset(tile.bytes, 0, sizeof(tile.bytes));
    for (int i = 0; i < tile.rows; ++i, row += stride) {
        std::memcpy(tile.bytes[i], reinterpret_cast<const void*>(row),
                    static_cast<std::size_t>(tile.row_bytes));
    }
}

void store(const Tile& tile, std::uint64_t row, std::uint64_t stride) {
    for (int i = 0; i < tile.rows; ++i, row += stride) {
        std::memcpy(reinterpret_cast<void*>(row), tile.bytes[i],
                    static_cast<std::size_t>(tile.row_bytes));
    }
}

}  // namespace

const char* TileFile::configure(const std::uint8_t* configuration) {
    if (const char* reason = refuse(configuration)) return reason;
    for (std::size_t i = 0; i < tiles_.size(); ++i) {
        tiles_[i].rows = rows_of(configuration, static_cast<int>(i));
        tiles_[i].row_bytes = row_bytes_of(configuration, static_cast<int>(i));
        std::memset(tiles_[i].bytes, 0, sizeof(tiles_[i].bytes));
    }
    configured_ = true;
    return nullptr;
}

const char* TileFile::refuse_use(const AmxInstruction& instruction, int tiles) const {
    if (!configured_) return "the tiles are not configured";
    for (int i = 0; i < tiles; ++i) {
        const auto operand = static_cast<std::size_t>(i);
        if (instruction.tiles[operand] > 7) return "there are tiles 0 to 7 only";
        if (used(instruction, operand).rows == 0) return "the configuration gives a tile no rows";
    }
    return nullptr;
}

const char* TileFile::refuse_product(const AmxInstruction& instruction) const {
    if (const char* reason = refuse_use(instruction, 3)) return reason;
    const auto [first, second, third] = instruction.tiles;
    if (first == second || second == third || first == third)
        return "two of its three tiles are the same";
    const Tile& result = used(instruction, 0);
    const Tile& a = used(instruction, 1);
    const Tile& b = used(instruction, 2);
    if (result.row_bytes % 4 != 0 || a.row_bytes % 4 != 0 || b.row_bytes % 4 != 0)
        return "a tile's bytes per row are not a multiple of 4";
    if (result.rows != a.rows) return "the result and the first source differ in rows";
    if (result.row_bytes != b.row_bytes)
        return "the result and the second source differ in bytes per row";
    if (a.row_bytes != 4 * b.rows)
        return "the second source has not one row for every 4 bytes in a row of the first";
    return nullptr;
}

const char* TileFile::multiply(const AmxInstruction& instruction) {
    if (const char* reason = refuse_product(instruction)) return reason;
    Tile& result = used(instruction, 0);
    const Tile& a = used(instruction, 1);
    const Tile& b = used(instruction, 2);
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
    const std::uint64_t start = start_of(instruction, registers);
    const AmxOperation it = instruction.operation;
    if (it == ldtilecfg) return configure(reinterpret_cast<const std::uint8_t*>(start));
    if (it == tilerelease) {
        release();
        return nullptr;
    }
    if (it >= tdpbf16ps) return multiply(instruction);
    if (const char* reason = refuse_use(instruction, 1)) return reason;
    Tile& tile = used(instruction, 0);
    if (it == tilezero) {
        std::memset(tile.bytes, 0, sizeof(tile.bytes));
    } else if (it == tilestored) {
        store(tile, start, stride_of(instruction, registers));
    } else {
        load(tile, start, stride_of(instruction, registers));
    }
    return nullptr;
}

}  // namespace dlprim::testing
