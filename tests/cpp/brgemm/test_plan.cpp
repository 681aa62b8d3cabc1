#include <algorithm>
#include <future>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "brgemm/plan.h"
#include "cases.h"
#include "jit/activation.h"
#include "known_machines.h"

namespace dlprim {
namespace {

using testing::kIntel;
using testing::kZen3;

constexpr int kQuad = 4;

struct Setting {
    Isa isa;
    Machine machine;
};

std::vector<Setting> settings() {
    std::vector<Setting> all;
    for (const Isa isa : {Isa::avx2, Isa::avx512}) {
        for (const bool shuffles : {false, true}) {
            all.push_back({isa, {.shuffles_beat_broadcast_loads = shuffles}});
        }
    }
    all.push_back({Isa::avx2, kZen3});
    all.push_back({Isa::avx2, kIntel});
    return all;
}

std::vector<Epilogue> epilogues() {
    std::vector<Epilogue> all;
    for (const bool bias : {false, true}) {
        for (const Activation activation :
             {Activation::none, Activation::relu, Activation::gelu, Activation::tanh}) {
            all.push_back({.bias = bias, .activation = activation});
        }
    }
    return all;
}

// Each of the following returns what is wrong with a plan, empty when nothing is.

std::string fault_in_cover(const BrgemmPlan& plan) {
    std::vector<int> covered(static_cast<std::size_t>(plan.spec.m * plan.spec.n), 0);
    std::int64_t column = 0;
    for (const ColumnGroup& columns : plan.columns) {
        for (std::int64_t block = 0; block < columns.count; ++block) {
            const std::int64_t end =
                std::min<std::int64_t>(column + columns.vectors * plan.lanes, plan.spec.n);
            std::int64_t row = 0;
            for (const RowGroup& rows : columns.rows) {
                const std::int64_t below = row + rows.count * rows.tile.rows;
                if (below > plan.spec.m) return "rows beyond m";
                for (; row < below; ++row) {
                    for (std::int64_t j = column; j < end; ++j) {
                        ++covered[static_cast<std::size_t>(row * plan.spec.n + j)];
                    }
                }
            }
            column += columns.vectors * plan.lanes;
        }
    }
    const bool once = std::all_of(covered.begin(), covered.end(), [](int n) { return n == 1; });
    return once ? "" : "an element of C is not covered exactly once";
}

std::string fault_in_columns(const BrgemmPlan& plan) {
    std::int64_t vectors = 0;
    int widest = 0;
    int narrowest = 1 << 20;
    for (std::size_t i = 0; i < plan.columns.size(); ++i) {
        const ColumnGroup& group = plan.columns[i];
        const bool last = i + 1 == plan.columns.size();
        if (group.count < 1 || group.vectors < 1) return "an empty column group";
        if (group.masked != (last && plan.tail_lanes > 0))
            return "a mask elsewhere than at the end";
        if (group.masked && group.count != 1) return "more than one masked block";
        if (i > 0 && group.vectors > plan.columns[i - 1].vectors) return "a wider block follows";
        widest = std::max(widest, group.vectors);
        narrowest = std::min(narrowest, group.vectors);
        vectors += group.count * group.vectors;
    }
    if (widest - narrowest > 1) return "column blocks differ by more than one vector";
    if (vectors != (plan.spec.n + plan.lanes - 1) / plan.lanes) return "wrong number of vectors";
    if (plan.tail_lanes != plan.spec.n % plan.lanes) return "wrong tail";
    return "";
}

std::string fault_in_rows(const BrgemmPlan& plan, const ColumnGroup& columns) {
    if (columns.rows.empty() || columns.rows.size() > 2) return "not one or two tile heights";
    std::int64_t rows = 0;
    for (const RowGroup& group : columns.rows) {
        if (group.count < 1) return "an empty row group";
        if (group.tile.vectors != columns.vectors) return "a tile is not as wide as its column";
        rows += group.count * group.tile.rows;
    }
    if (rows != plan.spec.m) return "the tiles of a column do not add up to m";
    if (columns.rows.size() == 2 && columns.rows[0].tile.rows <= columns.rows[1].tile.rows) {
        return "the taller tiles are not first";
    }
    return "";
}

std::string fault_in_tile(const BrgemmPlan& plan, const RowGroup& group) {
    const Tile& tile = group.tile;
    const int by = plan.spec.trans_a ? kQuad : 1;
    if (tile.rows < 1 || tile.vectors < 1 || tile.sets < 1) return "an empty tile";
    if (tile.sets > plan.spec.k) return "more accumulator sets than k steps";
    if (tile.quad_rows < 0 || tile.quad_rows > tile.rows) return "quad rows beyond the tile";
    if (tile.quad_rows % by != 0) return "a transposed quad that is not four rows";
    if (tile.quad_rows > 0 && !plan.spec.trans_a && plan.spec.k < kQuad) return "a quad beyond k";
    if (group.unroll < 1 || group.unroll > plan.spec.k) return "unrolling beyond k";
    const bool loops = group.unroll < plan.spec.k;
    if (loops && group.unroll % kQuad != 0) return "a loop iteration that splits a quad";
    return "";
}

// Counts the registers once more, role by role, without register_map's arithmetic.
std::string fault_in_registers(const BrgemmPlan& plan, const Tile& tile) {
    const RegisterMap map = register_map(plan.spec, plan.isa, tile);
    std::vector<int> uses(static_cast<std::size_t>(vector_file(plan.isa).registers), 0);
    if (map.total > vector_file(plan.isa).registers) return "more registers than there are";
    const auto occupy = [&](int first, int count) {
        for (int i = first; i < first + count; ++i) ++uses.at(static_cast<std::size_t>(i));
    };
    const bool a_from_memory = map.quads == map.a;
    occupy(map.accumulators, tile.rows * tile.vectors * tile.sets);
    occupy(map.b, map.streams_b ? 1 : tile.vectors);
    occupy(map.a, map.streams_b ? tile.rows : a_from_memory ? 0 : 1);
    occupy(map.quads, plan.spec.trans_a ? tile.quad_rows / kQuad : tile.quad_rows);
    if (*std::max_element(uses.begin(), uses.end()) > 1) return "two roles share a register";
    if (a_from_memory && (tile.vectors > 1 || tile.quad_rows > 0)) return "no register for A";
    if (a_from_memory && plan.isa < Isa::avx512) return "AVX2 has no embedded broadcast";
    const int used = static_cast<int>(std::count(uses.begin(), uses.end(), 1));
    const Epilogue& epilogue = plan.spec.epilogue;
    const int finishing =
        std::max(epilogue.bias ? 1 : 0, activation_registers(epilogue.activation)) +
        (plan.isa < Isa::avx512 && plan.tail_lanes > 0 ? 1 : 0);
    if (map.b + finishing > map.total) return "the epilogue's registers were not subtracted";
    if (used > map.total) return "the total leaves out a register";
    return "";
}

std::string fault(const BrgemmPlan& plan) {
    std::string found = fault_in_columns(plan);
    if (found.empty() && plan.spec.m * plan.spec.n <= 10000) found = fault_in_cover(plan);
    for (const ColumnGroup& columns : plan.columns) {
        if (found.empty()) found = fault_in_rows(plan, columns);
        for (const RowGroup& rows : columns.rows) {
            if (found.empty()) found = fault_in_tile(plan, rows);
            if (found.empty()) found = fault_in_registers(plan, rows.tile);
        }
    }
    return found.empty() ? "" : found + " in " + to_string(plan);
}

void check_plans(const BrgemmSpec& spec) {
    for (const Setting& setting : settings()) {
        const BrgemmPlan plan = make_plan(spec, setting.isa, setting.machine);
        CHECK(plan.spec == spec);
        CHECK(plan.isa == setting.isa);
        CHECK(plan.lanes == vector_file(setting.isa).bytes / 4);
        CHECK(fault(plan) == "");
    }
}

TEST_CASE("every plan covers C once, in the registers there are") {
    const std::vector<std::int64_t> extents = {1,  2,  3,  5,  7,  8,  13, 15, 16,  17,  28,
                                               31, 32, 33, 48, 49, 63, 64, 65, 100, 129, 1000};
    const std::vector<Epilogue> kinds = epilogues();
    std::uint32_t turn = 0;
    for (const std::int64_t m : extents) {
        for (const std::int64_t n : extents) {
            for (const std::int64_t k : extents) {
                const Epilogue& epilogue = kinds[turn / 2 % kinds.size()];
                const bool trans_a = turn % 2 == 1;
                if (!testing::is_run(turn++)) continue;
                check_plans(
                    validated({.m = m, .n = n, .k = k, .trans_a = trans_a, .epilogue = epilogue}));
            }
        }
    }
}

TEST_CASE("every epilogue and both layouts of A leave a plan for every small C") {
    std::uint32_t turn = 0;
    for (std::int64_t m = 1; m <= 40; ++m) {
        for (const std::int64_t n : {1, 8, 9, 16, 17, 24, 33, 40, 64, 72}) {
            for (const Epilogue& epilogue : epilogues()) {
                for (const bool trans_a : {false, true}) {
                    if (!testing::is_run(turn++)) continue;
                    check_plans(validated(
                        {.m = m, .n = n, .k = 9, .trans_a = trans_a, .epilogue = epilogue}));
                }
            }
        }
    }
}

TEST_CASE("plans for the largest extents stay small") {
    constexpr std::int64_t most = (std::int64_t{1} << 31) - 1;
    constexpr std::int64_t most_row = std::int64_t{1} << 24;
    for (const BrgemmSpec& spec : {
             validated({.m = most, .n = most_row, .k = most_row}),
             validated({.m = most_row, .n = 1, .k = most, .trans_a = true}),
             validated({.m = 1, .n = most_row, .k = 1}),
         }) {
        check_plans(spec);
        for (const Setting& setting : settings()) {
            CHECK(make_plan(spec, setting.isa, setting.machine).columns.size() <= 3);
        }
    }
}

// Two FMA units with a latency of four cycles want eight independent sums.
TEST_CASE("every tile has enough accumulators to hide the latency of the FMA") {
    std::uint32_t turn = 0;
    for (const Setting& setting : settings()) {
        for (std::int64_t m = 1; m <= 70; ++m) {
            for (std::int64_t n = 1; n <= 140; n += 3) {
                if (!testing::is_run(turn++)) continue;
                const BrgemmPlan plan =
                    make_plan(validated({.m = m, .n = n, .k = 64}), setting.isa, setting.machine);
                for (const ColumnGroup& columns : plan.columns) {
                    for (const RowGroup& rows : columns.rows) {
                        const bool enough = rows.tile.accumulators() >= 8;
                        CHECK_MESSAGE(enough, to_string(plan));
                    }
                }
            }
        }
    }
}

// Two dot products start per cycle and take five.
TEST_CASE("tiles of bytes on 256-bit registers fit and hide the latency of the dot product") {
    std::uint32_t turn = 0;
    for (const Isa isa : {Isa::avx2_vnni, Isa::avx2_vnni_int8}) {
        for (const bool trans_a : {false, true}) {
            for (std::int64_t m = 1; m <= 70; ++m) {
                for (std::int64_t n = 1; n <= 140; n += 3) {
                    if (!testing::is_run(turn++)) continue;
                    const DType a = isa == Isa::avx2_vnni ? DType::u8 : DType::s8;
                    const BrgemmPlan plan = make_plan(validated({.m = m,
                                                                 .n = n,
                                                                 .k = 64,
                                                                 .a_type = a,
                                                                 .b_type = DType::s8,
                                                                 .c_type = DType::s32,
                                                                 .trans_a = trans_a}),
                                                      isa, {});
                    CHECK(plan.isa == isa);
                    CHECK(fault(plan) == "");
                    const bool enough = m < 12 || n < 16 || plan.main_tile().accumulators() >= 10;
                    CHECK_MESSAGE(enough, to_string(plan));
                }
            }
        }
    }
}

TEST_CASE("a plan depends on its arguments alone") {
    const BrgemmSpec spec = validated({.m = 49, .n = 100, .k = 33});
    for (const Setting& setting : settings()) {
        const auto print = [&] { return to_string(make_plan(spec, setting.isa, setting.machine)); };
        const std::string first = print();
        make_plan(validated({.m = 7, .n = 7, .k = 7}), Isa::avx2, {});
        CHECK(print() == first);
        CHECK(std::async(std::launch::async, print).get() == first);
    }
}

TEST_CASE("scalar has no tiles and no registers") {
    const BrgemmPlan plan = make_plan(validated({.m = 3, .n = 4, .k = 5}), Isa::scalar, {});
    CHECK(plan.isa == Isa::scalar);
    CHECK(plan.columns.empty());
    CHECK(plan.main_tile() == Tile{.rows = 1, .vectors = 1});
}

TEST_CASE("float32 kernels use AVX-512 foundation at every level above it") {
    const BrgemmSpec spec = validated({.m = 3, .n = 4, .k = 5});
    CHECK(kernel_isa(spec, Isa::scalar) == Isa::scalar);
    CHECK(kernel_isa(spec, Isa::avx2) == Isa::avx2);
    for (const Isa isa : {Isa::avx512, Isa::avx512_vnni, Isa::avx512_bf16, Isa::amx}) {
        CHECK(kernel_isa(spec, isa) == Isa::avx512);
        CHECK(make_plan(spec, isa, {}).isa == Isa::avx512);
    }
}

TEST_CASE("the main tile is the one that does most of the work") {
    const BrgemmPlan plan = make_plan(validated({.m = 64, .n = 64, .k = 64}), Isa::avx512, {});
    const Tile main = plan.main_tile();
    std::int64_t most = 0;
    std::int64_t of_main = 0;
    for (const ColumnGroup& columns : plan.columns) {
        for (const RowGroup& rows : columns.rows) {
            const std::int64_t work =
                columns.count * rows.count * rows.tile.rows * rows.tile.vectors;
            most = std::max(most, work);
            if (rows.tile == main) of_main = std::max(of_main, work);
        }
    }
    CHECK(of_main == most);
}

TEST_CASE("sums are alike where the words of k take turns alike among the sets of a tile") {
    const auto plan = [](std::int64_t k, int sets, int unroll, DType dtype = DType::f32) {
        BrgemmPlan made{
            .spec = validated({.m = 2, .n = 8, .k = k, .a_type = dtype, .b_type = dtype}),
            .isa = Isa::avx2};
        const Tile tile{.rows = 2, .vectors = 1, .sets = sets};
        made.columns = {{.count = 1, .vectors = 1, .rows = {{tile, 1, unroll}}}};
        return made;
    };
    CHECK(sums_alike(plan(40, 1, 16), plan(40, 1, 20)));
    CHECK_FALSE(sums_alike(plan(40, 3, 20), plan(40, 2, 20)));
    CHECK(sums_alike(plan(40, 2, 16), plan(40, 2, 20)));
    CHECK(sums_alike(plan(40, 3, 12), plan(40, 3, 24)));
    CHECK(sums_alike(plan(40, 3, 40), plan(40, 3, 24)));  // all at once
    CHECK_FALSE(sums_alike(plan(40, 3, 16), plan(40, 3, 12)));
    CHECK_FALSE(sums_alike(plan(40, 3, 16), plan(40, 3, 20)));
    CHECK(sums_alike(plan(12, 3, 16), plan(12, 3, 20)));
    // Half a word stands behind the loop: here it is the first of its turn, there the third.
    CHECK_FALSE(sums_alike(plan(29, 4, 14, DType::bf16), plan(29, 4, 12, DType::bf16)));
    CHECK(sums_alike(plan(29, 4, 4, DType::bf16), plan(29, 4, 12, DType::bf16)));
}

}  // namespace
}  // namespace dlprim
