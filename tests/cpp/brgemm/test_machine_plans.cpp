// What was fastest on a machine, tried tile by tile there, is what is planned for it.
#include <algorithm>
#include <string>

#include <doctest/doctest.h>

#include "brgemm/plan.h"
#include "known_machines.h"

namespace dlprim {
namespace {

using testing::kIntel;
using testing::kZen3;
using testing::kZen4;
using testing::kZen4At512;

std::string tiles_of(std::int64_t m, std::int64_t n, bool trans_a, const Machine& machine) {
    std::string text;
    const BrgemmSpec spec = validated({.m = m, .n = n, .k = 64, .trans_a = trans_a});
    for (const ColumnGroup& columns : make_plan(spec, Isa::avx2, machine).columns) {
        text += text.empty() ? "" : " ";
        text += std::to_string(columns.count) + "*";
        for (const RowGroup& rows : columns.rows) {
            text += "[" + std::to_string(rows.count) + "*" + std::to_string(rows.tile.rows) + "x" +
                    std::to_string(rows.tile.vectors) + "]";
        }
    }
    return text;
}

TEST_CASE("plans for an AVX2 machine with a narrow L2 cache take whole cache lines of B") {
    CHECK(tiles_of(64, 64, false, kZen3) == "4*[9*6x2][2*5x2]");
    CHECK(tiles_of(28, 64, false, kZen3) == "4*[3*6x2][2*5x2]");
    CHECK(tiles_of(24, 64, false, kZen3) == "4*[4*6x2]");
    CHECK(tiles_of(64, 24, false, kZen3) == "1*[16*4x3]");
    CHECK(tiles_of(64, 64, true, kZen3) == "4*[9*6x2][2*5x2]");
    CHECK(tiles_of(1, 64, false, kZen3) == "1*[1*1x8]");
    CHECK(tiles_of(3, 64, false, kZen3) == "2*[1*3x4]");
}

TEST_CASE("plans for Zen 4 at AVX2 have tiles of two or four vectors") {
    CHECK(tiles_of(64, 64, false, kZen4) == "4*[9*6x2][2*5x2]");
    CHECK(tiles_of(14, 64, false, kZen4) == "2*[4*3x4][1*2x4]");
    CHECK(tiles_of(7, 64, false, kZen4) == "2*[1*3x4][2*2x4]");
    CHECK(tiles_of(64, 48, false, kZen4) == "3*[9*6x2][2*5x2]");
}

TEST_CASE("plans for AVX2 where a multiply-add takes four cycles do without tiles of ten sums") {
    CHECK(tiles_of(32, 32, false, kIntel) == "1*[10*3x4][1*2x4]");
    CHECK(tiles_of(14, 64, false, kIntel) == "2*[4*3x4][1*2x4]");
    CHECK(tiles_of(7, 64, false, kIntel) == "2*[1*4x3][1*3x3] 1*[1*4x2][1*3x2]");
    CHECK(tiles_of(28, 64, false, kIntel) == "2*[7*4x3] 1*[4*6x2][1*4x2]");
}

TEST_CASE("tiles have no more rows of A than stay in the cache when they share its sets") {
    const auto most_rows = [](std::int64_t lda, const Machine& machine) {
        const BrgemmSpec spec = validated({.m = 64, .n = 16, .k = 64, .lda = lda});
        const BrgemmPlan plan = make_plan(spec, Isa::avx512, machine);
        int most = 0;
        for (const RowGroup& rows : plan.columns.front().rows) {
            most = std::max(most, rows.tile.rows);
        }
        return most;
    };
    CHECK(most_rows(1040, kIntel) > 12);
    CHECK(most_rows(1024, kIntel) <= 12);
    CHECK(most_rows(512, kIntel) <= 24);
    CHECK(most_rows(2048, kZen3) <= 8);
    CHECK(kIntel.lines_kept(4096) == 12);
    CHECK(kIntel.lines_kept(2048) == 24);
    CHECK(kIntel.lines_kept(4096 + 64) == 768);
}

TEST_CASE("tiles are wide where preparing an element of A takes a turn from the multiplications") {
    BrgemmSpec spec = validated({.m = 64,
                                 .n = 64,
                                 .k = 64,
                                 .a_type = DType::s8,
                                 .b_type = DType::s8,
                                 .c_type = DType::s32});
    CHECK(make_plan(spec, Isa::avx512_vnni, kIntel).main_tile() == Tile{.rows = 5, .vectors = 4});
    CHECK(make_plan(spec, Isa::avx512_vnni, kZen4At512).main_tile().vectors == 4);
    CHECK(make_plan(spec, Isa::avx2_vnni, kIntel).main_tile() == Tile{.rows = 5, .vectors = 2});
    spec.a_type = spec.b_type = DType::bf16;
    spec.c_type = DType::f32;
    CHECK(make_plan(spec, Isa::avx512, kIntel).main_tile() == Tile{.rows = 6, .vectors = 4});
}

}  // namespace
}  // namespace dlprim
