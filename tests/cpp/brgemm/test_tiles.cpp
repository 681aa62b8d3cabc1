#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cfenv>
#include <csignal>
#include <map>
#include <vector>

#include <doctest/doctest.h>
#include <ucontext.h>

#include "brgemm/amx/kept_tiles.h"
#include "brgemm/amx/tile_map.h"
#include "brgemm/brgemm.h"
#include "kernel_problem.h"

namespace dlprim {
namespace {

struct Shape {
    int rows;
    int row_bytes;

    friend bool operator==(const Shape&, const Shape&) = default;
};

Shape shape_of(const TileConfiguration& configuration, int tile) {
    const auto index = static_cast<std::size_t>(tile);
    return {configuration.bytes[48 + index], configuration.bytes[16 + 2 * index]};
}

// What the hardware asks of every product.
bool agree(const TileConfiguration& it, int c, int a, int b) {
    const Shape of_c = shape_of(it, c), of_a = shape_of(it, a), of_b = shape_of(it, b);
    return of_c.rows == of_a.rows && of_c.row_bytes == of_b.row_bytes &&
           of_a.row_bytes == kWordBytes * of_b.rows && of_c.rows > 0 && of_b.rows > 0 &&
           of_c.row_bytes > 0;
}

BrgemmSpec spec_of(std::int64_t k, DType a, bool zero_a = false, bool zero_b = false) {
    return validated({.m = 64,
                      .n = 64,
                      .k = k,
                      .a_type = a,
                      .b_type = a == DType::bf16 ? a : DType::s8,
                      .zero_point_a = zero_a,
                      .zero_point_b = zero_b});
}

template <typename Body>
void for_each_tile_that_fits(const BrgemmSpec& spec, Body body) {
    for (int rows = 1; rows <= 96; ++rows) {
        for (int vectors = 1; vectors <= 4; ++vectors) {
            const Tile tile{.rows = rows, .vectors = vectors};
            if (tile_map(spec, tile).total <= kTileRegisters) body(tile);
        }
    }
}

const std::vector<BrgemmSpec> kSpecs = {spec_of(3, DType::bf16),
                                        spec_of(64, DType::bf16),
                                        spec_of(72, DType::bf16),
                                        spec_of(100, DType::u8, true),
                                        spec_of(64, DType::s8, false, true),
                                        spec_of(5, DType::u8, true, true)};

TEST_CASE("row tiles cover a block and fit their registers") {
    for_each_tile_that_fits(kSpecs[0], [](const Tile& tile) {
        CHECK(tile_map(kSpecs[0], tile).row_tiles <= kMostTilesAcross);
        int next = 0;
        for (int r = 0; r < tile_map(kSpecs[0], tile).row_tiles; ++r) {
            const TileRows rows = tile_rows(tile, r);
            CHECK(rows.first == next);
            CHECK(rows.count >= 1);
            CHECK(rows.count <= kMostTileRows);
            next += rows.count;
        }
        CHECK(next == tile.rows);
    });
}

TEST_CASE("the shapes of all products agree") {
    for (const BrgemmSpec& spec : kSpecs) {
        for_each_tile_that_fits(spec, [&](const Tile& tile) {
            const TileMap map = tile_map(spec, tile);
            for (const int last : {1, 7, 16}) {
                const TileConfiguration it = tile_configuration(spec, tile, last);
                for (int r = 0; r < map.row_tiles; ++r) {
                    for (int s = 0; s < map.column_tiles; ++s) {
                        CHECK(agree(it, map.c(r, s), map.a_at(r), map.b_at(s)));
                        if (spec.zero_point_a) {
                            CHECK(agree(it, map.b_sums + s, map.ones_a, map.b_at(s)));
                        }
                    }
                    if (spec.zero_point_b) {
                        CHECK(agree(it, map.a_sums + r, map.a_at(r), map.ones_b));
                    }
                }
            }
        });
    }
}

TEST_CASE("a configuration's key stands for its bytes") {
    std::map<std::uint64_t, std::array<std::uint8_t, 64>> seen;
    for (const BrgemmSpec& spec : kSpecs) {
        for_each_tile_that_fits(spec, [&](const Tile& tile) {
            for (int last = 1; last <= kMostTileRows; ++last) {
                const TileConfiguration it = tile_configuration(spec, tile, last);
                CHECK(it.key != 0);
                CHECK(seen.try_emplace(it.key, it.bytes).first->second == it.bytes);
            }
        });
    }
}

TEST_CASE("steps along k are equal and as few as sixteen words allow") {
    CHECK(tile_depth(spec_of(64, DType::bf16)) == 16);
    CHECK(tile_depth(spec_of(48, DType::bf16)) == 12);
    CHECK(tile_depth(spec_of(40, DType::bf16)) == 10);
    CHECK(tile_depth(spec_of(3, DType::bf16)) == 2);
    CHECK(tile_depth(spec_of(64, DType::u8)) == 16);
}

constexpr std::size_t kPage = 4096;

struct OnSmallStack {
    const Brgemm* kernel;
    BrgemmArgs args;
} on_small_stack;

void call_on_small_stack() { (*on_small_stack.kernel)(on_small_stack.args); }

// Calls the kernel on a stack of two pages above a page that faults and `below`; does not return.
[[noreturn]] void run_on_small_stack(std::byte* below, std::size_t bytes) {
    static ucontext_t here, there;
    std::signal(SIGSEGV, SIG_DFL);
    mprotect(below + bytes, kPage, PROT_NONE);
    getcontext(&there);
    there.uc_stack = {.ss_sp = below + bytes + kPage, .ss_flags = 0, .ss_size = 2 * kPage};
    there.uc_link = &here;
    makecontext(&there, call_on_small_stack, 0);
    swapcontext(&here, &there);
    _exit(0);
}

TEST_CASE("a stack too small for a kernel ends at its guard page") {
    if (usable_isa() < Isa::amx) {
        MESSAGE("skipped, not usable here: amx");
        return;
    }
    // Of the stack it uses the two ends alone.
    const auto kernel = brgemm({.m = 32,
                                .n = 40,
                                .k = 64,
                                .a_type = DType::bf16,
                                .b_type = DType::bf16,
                                .epilogue = {.activation = Activation::relu}});
    const std::vector<std::uint16_t> operand(4096);
    std::vector<float> c(32 * 40);
    on_small_stack = {
        kernel.get(),
        {.a = operand.data(), .b = operand.data(), .c = c.data(), .batch = 1},
    };
    const std::size_t bytes = 16 * kPage;
    auto* const memory = static_cast<std::byte*>(mmap(
        nullptr, bytes + 3 * kPage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    REQUIRE(memory != MAP_FAILED);
    const pid_t child = fork();
    if (child == 0) run_on_small_stack(memory, bytes);
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status));
    CHECK(WTERMSIG(status) == SIGSEGV);
    CHECK(std::all_of(memory, memory + bytes, [](std::byte byte) { return byte == std::byte{}; }));
    munmap(memory, bytes + 3 * kPage);
}

[[gnu::noinline]] void leave_on_stack(std::uint32_t value) {
    volatile std::uint32_t words[1 << 13];
    for (volatile std::uint32_t& word : words) word = value;
}

TEST_CASE("nothing but the columns of C is computed with") {
    if (usable_isa() < Isa::amx) {
        MESSAGE("skipped, not usable here: amx");
        return;
    }
    constexpr std::uint32_t kSignallingNaN = 0x7fa00000;
    const auto kernel = brgemm({.m = 32,
                                .n = 40,
                                .k = 48,
                                .a_type = DType::bf16,
                                .b_type = DType::bf16,
                                .epilogue = {.activation = Activation::sigmoid}});
    const std::vector<std::uint16_t> operand(2048, 0x3f80);
    std::vector<float> c(32 * 40);
    leave_on_stack(kSignallingNaN);
    std::feclearexcept(FE_ALL_EXCEPT);
    (*kernel)({.a = operand.data(), .b = operand.data(), .c = c.data(), .batch = 1});
    CHECK(std::fetestexcept(FE_INVALID) == 0);
}

TEST_CASE("kernels that take turns with the tiles of a thread give the same results") {
    if (usable_isa() < Isa::amx) {
        MESSAGE("skipped, not usable here: amx");
        return;
    }
    for (const int m : {5, 16, 33, 64}) {
        KeptTiles tiles;
        for (int turn = 0; turn < 3; ++turn) {
            for (const int n : {16, 40, 64}) {
                const auto kernel =
                    brgemm({.m = m, .n = n, .k = 48, .a_type = DType::bf16, .b_type = DType::bf16});
                const std::vector<std::uint16_t> a(static_cast<std::size_t>(m * 48), 0x3f80);
                const std::vector<std::uint16_t> b(static_cast<std::size_t>(n * 48), 0x4000);
                std::vector<float> c(static_cast<std::size_t>(m * n), -1);
                (*kernel)({.a = a.data(),
                           .b = b.data(),
                           .c = c.data(),
                           .batch = 1,
                           .tiles = turn == 1 ? nullptr : tiles.state()});
                CHECK(std::all_of(c.begin(), c.end(), [](float value) { return value == 96; }));
                if (turn == 1) *tiles.state() = 0;  // that call has released them
            }
        }
    }
}

}  // namespace
}  // namespace dlprim
