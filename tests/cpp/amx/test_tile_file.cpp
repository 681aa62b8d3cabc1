#include <doctest/doctest.h>

#include "amx/tile_configuration.h"
#include "amx/tile_file.h"
#include "draw.h"
#include "jit/isa.h"

namespace dlprim::testing {
namespace {

using enum AmxOperation;

constexpr int kBase = 3;
constexpr int kIndex = 9;

AmxRegisters at(const void* memory, std::int64_t stride = 0) {
    AmxRegisters registers;
    registers.general[kBase] = reinterpret_cast<std::uint64_t>(memory);
    registers.general[kIndex] = static_cast<std::uint64_t>(stride);
    return registers;
}

void run(TileFile& file, const AmxInstruction& instruction, const AmxRegisters& registers = {}) {
    const char* reason = file.step(instruction, registers);
    CHECK_MESSAGE(reason == nullptr, name_of(instruction.operation), ": ", reason);
}

AmxInstruction access(AmxOperation operation, int tile, const AmxAddress& address) {
    return {operation, 6, {tile}, address};
}

std::vector<std::uint8_t> random_bytes(Draw& draw, std::size_t count) {
    std::vector<std::uint8_t> bytes(count);
    for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(draw.from(0, 255));
    return bytes;
}

TEST_CASE("a tile is loaded by rows and the rest of it is zero") {
    Draw draw(1);
    const auto memory = random_bytes(draw, 2000);
    const TileConfiguration shapes = configuration_of({{5, 12}, {16, 64}});
    TileFile file;
    run(file, access(ldtilecfg, 0, {.base = kBase}), at(&shapes));
    // Through the scale, from a displacement, backwards.
    const AmxAddress address = {kBase, kIndex, 4, 1000};
    run(file, access(tileloadd, 0, address), at(memory.data(), -50));
    const Tile& tile = file.tile(0);
    for (int row = 0; row < 16; ++row) {
        for (int byte = 0; byte < 64; ++byte) {
            const bool inside = row < 5 && byte < 12;
            const auto from = static_cast<std::size_t>(1000 - 200 * row + byte);
            CHECK(tile.bytes[row][byte] == (inside ? memory[inside ? from : 0] : 0));
        }
    }
    run(file, access(tileloaddt1, 1, {.base = kBase}), at(memory.data()));
    for (const auto& row : file.tile(1).bytes) CHECK(std::memcmp(row, memory.data(), 64) == 0);
}

TEST_CASE("a tile is stored by rows and nothing between them is written") {
    Draw draw(2);
    const auto memory = random_bytes(draw, 16 * 64);
    const TileConfiguration shapes = configuration_of({{7, 20}});
    TileFile file;
    run(file, access(ldtilecfg, 0, {.base = kBase}), at(&shapes));
    run(file, access(tileloadd, 0, {kBase, kIndex, 1, 0}), at(memory.data(), 64));
    std::vector<std::uint8_t> stored(7 * 30, 0xEE);
    run(file, access(tilestored, 0, {kBase, kIndex, 2, 0}), at(stored.data(), 15));
    for (std::size_t i = 0; i < stored.size(); ++i) {
        const bool inside = i % 30 < 20;
        CHECK(stored[i] == (inside ? memory[i / 30 * 64 + i % 30] : 0xEE));
    }
}

TEST_CASE("a configuration behind the instruction is found, and zeroes the tiles") {
    struct {
        std::array<std::uint8_t, 16> code;
        TileConfiguration shapes = configuration_of({{16, 64}});
    } image{};
    const std::vector<std::uint8_t> ones(64, 1);
    TileFile file;
    AmxRegisters registers = at(ones.data());
    registers.instruction = reinterpret_cast<std::uint64_t>(&image);
    const AmxAddress address = {.base = AmxAddress::kNextInstruction, .displacement = 7};
    const AmxInstruction configure = {ldtilecfg, 9, {}, address};
    for (const bool zero_by_itself : {false, true}) {
        run(file, configure, registers);
        CHECK(file.tile(0).rows == 16);
        CHECK(file.tile(0).bytes[15][63] == 0);
        run(file, access(tileloadd, 0, {.base = kBase}), registers);
        CHECK(file.tile(0).bytes[15][63] == 1);
        if (zero_by_itself) run(file, {tilezero, 5, {0}, {}});
        CHECK(file.tile(0).bytes[15][63] == (zero_by_itself ? 0 : 1));
    }
    run(file, {tilerelease, 5, {}, {}});
    CHECK(file.step({tilezero, 5, {0}, {}}, {}) != nullptr);
}

int element(const Tile& tile, int row, int byte, bool is_signed) {
    const std::uint8_t value = tile.bytes[row][byte];
    return is_signed ? static_cast<std::int8_t>(value) : value;
}

template <typename T>
T element_as(const Tile& tile, int row, int index) {
    T value;
    std::memcpy(&value, tile.bytes[row] + static_cast<std::size_t>(index) * sizeof(T), sizeof(T));
    return value;
}

struct Product {
    AmxOperation operation;
    bool a_signed;
    bool b_signed;
};

// The emulation's products are instructions of AVX-512.
bool has_products() {
    const bool there = detected_isa() >= Isa::avx512;
    if (!there) MESSAGE("skipped: no AVX-512");
    return there;
}

TEST_CASE("products of bytes are those of plain loops, and wrap around") {
    if (!has_products()) return;
    Draw draw(3);
    for (const Product& it : {Product{tdpbssd, true, true}, Product{tdpbsud, true, false},
                              Product{tdpbusd, false, true}, Product{tdpbuud, false, false}}) {
        const int m = static_cast<int>(draw.from(1, 16));
        const int n = static_cast<int>(draw.from(1, 16));
        const int k = static_cast<int>(draw.from(1, 16));
        TileFile file;
        REQUIRE(file.configure(product_shapes(m, n, k)) == nullptr);
        for (int tile = 0; tile < 3; ++tile) {
            const auto bytes = random_bytes(draw, 16 * 64);
            run(file, access(tileloadd, tile, {kBase, kIndex, 1, 0}), at(bytes.data(), 64));
        }
        const Tile before = file.tile(0);
        run(file, {it.operation, 5, {0, 1, 2}, {}});
        for (int row = 0; row < 16; ++row) {
            for (int column = 0; column < 16; ++column) {
                auto sum = element_as<std::uint32_t>(before, row, column);
                for (int i = 0; i < 4 * k && row < m && column < n; ++i) {
                    sum += static_cast<std::uint32_t>(
                        element(file.tile(1), row, i, it.a_signed) *
                        element(file.tile(2), i / 4, 4 * column + i % 4, it.b_signed));
                }
                CHECK(element_as<std::uint32_t>(file.tile(0), row, column) == sum);
            }
        }
    }
}

// Exact in any order.
TEST_CASE("products of small whole numbers in bfloat16 are those of plain loops") {
    if (!has_products()) return;
    Draw draw(4);
    const int m = 15;
    const int n = 13;
    const int k = 11;
    TileFile file;
    REQUIRE(file.configure(product_shapes(m, n, k)) == nullptr);
    std::array<std::array<float, 512>, 3> numbers;
    for (int tile = 0; tile < 3; ++tile) {
        std::array<std::uint16_t, 512> halves = {};
        auto& own = numbers[static_cast<std::size_t>(tile)];
        for (std::size_t i = 0; i < own.size(); ++i) {
            own[i] = static_cast<float>(draw.from(-16, 16));
            halves[i] = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(own[i]) >> 16);
        }
        const void* memory = tile == 0 ? static_cast<const void*>(own.data()) : halves.data();
        run(file, access(tileloadd, tile, {kBase, kIndex, 1, 0}), at(memory, 64));
    }
    run(file, {tdpbf16ps, 5, {0, 1, 2}, {}});
    for (std::size_t row = 0; row < m; ++row) {
        for (std::size_t column = 0; column < n; ++column) {
            float sum = numbers[0][row * 16 + column];
            for (std::size_t i = 0; i < 2 * k; ++i)
                sum += numbers[1][row * 32 + i] * numbers[2][i / 2 * 32 + 2 * column + i % 2];
            CHECK(element_as<float>(file.tile(0), static_cast<int>(row),
                                    static_cast<int>(column)) == sum);
        }
    }
}

}  // namespace
}  // namespace dlprim::testing
