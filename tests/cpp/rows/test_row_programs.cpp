// Row programs: what plans make of them on any machine, and that generated code and interpreter
// agree.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "draw.h"
#include "jit/element_reference.h"
#include "primitives/programs/row_programs.h"
#include "primitives/programs/row_tasks.h"
#include "row_problem.h"
#include "rows/row_builder.h"
#include "rows/row_kernel.h"
#include "rows/row_plan.h"

namespace dlprim {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST_CASE("every named program fits the registers of every level") {
    for (const std::string& name : row_program_names()) {
        for (const DType dtype : {DType::f32, DType::bf16}) {
            for (const Isa isa : {Isa::avx2, Isa::avx512}) {
                CAPTURE(name);
                const RowPlan plan = make_row_plan(row_program(name, dtype), isa);
                CHECK(plan.registers.total <= vector_file(isa).registers);
                CHECK(plan.unroll >= 1);
                const bool reduces =
                    std::any_of(plan.passes.begin(), plan.passes.end(),
                                [](const RowPass& pass) { return !pass.reductions.empty(); });
                // Sums are added up by halves.
                if (reduces) CHECK(std::has_single_bit(static_cast<unsigned>(plan.unroll)));
            }
        }
    }
}

TEST_CASE("softmax keeps its exponentials, layer norm computes differences again") {
    const RowPlan plan = make_row_plan(row_program("softmax", DType::f32), Isa::avx512);
    CHECK(plan.passes.size() == 4);  // the last has no body
    CHECK(plan.passes.back().body.empty());
    CHECK(plan.kept_rows == 1);
    CHECK_FALSE(plan.by_strips);
    CHECK(make_row_plan(row_program("layer_norm", DType::f32), Isa::avx512).kept_rows == 0);
}

TEST_CASE("what is carried along a list is overwritten where it lies") {
    RowBuilder row;
    const RowValue x = row.listed(DType::f32), best = row.carried(-kInfinity);
    const RowValue place = row.carried(-1);
    row.carry(place, select(beats(x, best), row.number(), place));
    row.carry(best, select(beats(x, best), x, best));
    row.store(DType::f32, last(best));
    row.store(DType::u8, last(place));
    const RowPlan plan = make_row_plan(row.spec(), Isa::avx512);
    CHECK(plan.passes.front().body.size() == 3);  // a load and what selects
    CHECK(plan.unroll == 8);
}

TEST_CASE("programs that confuse listed rows with those of results are refused") {
    RowBuilder none;
    const RowValue state = none.carried(0);
    none.carry(state, state + none.tensor(DType::f32));
    CHECK_THROWS_AS(none.spec(), std::invalid_argument);
    RowBuilder early;
    const RowValue x = early.listed(DType::f32);
    early.store(DType::f32, x);
    CHECK_THROWS_AS(early.spec(), std::invalid_argument);
    RowBuilder stale;
    const RowValue total = stale.carried(0), y = stale.listed(DType::f32);
    stale.carry(total, total + y);
    stale.store(DType::f32, last(total) + y);
    CHECK_THROWS_AS(stale.spec(), std::invalid_argument);
}

// Of x, one number in three rows of results: of two entries, of none, and of one.
void run_on_list(const RowKernel& kernel, const float* x, const float* column, void* out) {
    const std::array<RowArgs::Listed, 3> list{};
    const std::array<std::int64_t, 3> counts{2, 0, 1};
    RowArgs args{.list = list.data(), .counts = counts.data(), .rows = 3, .columns = 1};
    args.operands[0] = {const_cast<float*>(x), 0};
    args.operands[1] = {const_cast<float*>(column), 0};
    args.operands[2] = {out, 4};
    kernel(args);
}

TEST_CASE("what a list does not change is there behind an empty one") {
    RowBuilder row;
    const RowValue x = row.listed(DType::f32), power = exp(row.column());
    const RowValue total = row.carried(0);
    row.carry(total, multiply_add(x, power, total));
    row.store(DType::f32, last(total) + power);
    const float two = 2, none = 0;
    for (const Isa isa : testing::generated_levels()) {
        const RowKernel kernel(row.spec(), isa);
        CHECK(kernel.scratch_floats(1) == 0);
        std::array<float, 3> out{};
        run_on_list(kernel, &two, &none, out.data());
        CHECK(out == std::array{5.0F, 1.0F, 3.0F});
    }
}

TEST_CASE("the first element of a row is there before the row is overwritten, on every pass") {
    constexpr std::int64_t kRows = 3, kColumns = 300;
    for (const bool with_column : {false, true}) {
        RowBuilder row;
        const RowValue x = row.tensor(DType::bf16), first = row.first(x);
        const RowValue added = with_column ? row.column() : RowValue(1.0F);
        row.store(DType::bf16, (x - first) * added);
        for (const Isa isa : testing::generated_levels()) {
            std::vector<std::uint16_t> values(kRows * kColumns);
            for (std::size_t i = 0; i < values.size(); ++i) {
                set_element(DType::bf16, values.data(), static_cast<std::int64_t>(i),
                            static_cast<float>(i / kColumns * 8 + i % kColumns % 7));
            }
            const std::vector<float> ones(kColumns, 1.0F);
            RowArgs args{.rows = kRows, .columns = kColumns};
            args.operands[0] = {values.data(), kColumns * 2};
            args.operands[1] = {const_cast<float*>(ones.data()), 0};
            args.operands[with_column ? 2 : 1] = {values.data(), kColumns * 2};
            run_rows(*row_kernel(row.spec(), isa), args);
            for (std::int64_t i = 0; i < kRows * kColumns; ++i) {
                const float expected = static_cast<float>(i % kColumns % 7);
                CHECK(element_at(DType::bf16, values.data(), i) == expected);
            }
        }
    }
}

TEST_CASE("the first element of an empty row is 0 and is not read") {
    for (const DType dtype : {DType::f32, DType::bf16, DType::s8, DType::u8}) {
        RowBuilder row;
        const RowValue x = row.tensor(dtype), first = row.first(x);
        row.store_per_row(first + sum_about(x, first));
        std::vector<Isa> levels = testing::generated_levels();
        levels.push_back(Isa::scalar);
        for (const Isa isa : levels) {
            std::array<float, 2> out{5, 5};
            RowArgs args{.rows = 2, .columns = 0};
            args.operands[0] = {nullptr, 0};
            args.operands[1] = {out.data(), 4};
            RowKernel(row.spec(), isa)(args);
            CHECK(out == std::array{0.0F, 0.0F});
        }
    }
}

TEST_CASE("a sum about what all elements of a row are is exactly 0") {
    RowBuilder row;
    const RowValue x = row.tensor(DType::f32);
    row.store_per_row(sum_about(x, row.first(x)));
    for (const Isa isa : testing::generated_levels()) {
        const RowKernel kernel(row.spec(), isa);
        for (const std::int64_t columns : {1, 3, 7, 8, 16, 31, 100, 129, 1000, 9001, 100003}) {
            const std::vector<float> values(static_cast<std::size_t>(columns), 1234567.1F);
            float total = 1;
            RowArgs args{.rows = 1, .columns = columns};
            args.operands[0].data = const_cast<float*>(values.data());
            args.operands[1].data = &total;
            kernel(args);
            CAPTURE(columns);
            CHECK(total == 0);
        }
    }
}

TEST_CASE("a sum about what differs along the row, and the first of no tensor, are refused") {
    RowBuilder differs;
    const RowValue x = differs.tensor(DType::f32);
    differs.store_per_row(sum_about(x, x));
    CHECK_THROWS_AS(differs.spec(), std::invalid_argument);
    RowBuilder column;
    column.store_per_row(column.first(column.column()));
    CHECK_THROWS_AS(column.spec(), std::invalid_argument);
}

TEST_CASE("rows of a list are not shared among threads") {
    RowBuilder row;
    const RowValue x = row.listed(DType::f32);
    const RowValue best = row.carried(0);
    row.carry(best, larger(best, x));
    row.store(DType::f32, last(best));
    CHECK_THROWS_AS(run_rows(*row_kernel(row.spec()), RowArgs{}), std::invalid_argument);
}

TEST_CASE("what is carried is rounded where it comes from another state that is not exact") {
    RowBuilder row;
    const RowValue x = row.listed(DType::f32), one = row.column();
    const RowValue negated = row.carried(0), product = row.carried(0);
    row.carry(negated, -product);
    row.carry(product, x * one);
    row.store(DType::bf16, last(negated));
    const float odd = 0x1.01fp0F, factor = 1;
    for (const Isa isa : testing::generated_levels()) {
        std::array<std::uint32_t, 3> out{};
        run_on_list(RowKernel(row.spec(), isa), &odd, &factor, out.data());
        CHECK(out == std::array{0xBF81U, 0U, 0x8000U});
    }
}

TEST_CASE("the reciprocal of a row's length is computed once for all rows") {
    const RowPlan plan = make_row_plan(row_program("layer_norm", DType::f32), Isa::avx512);
    const auto divides = [](const RowStep& step) { return step.op == RowOp::divide; };
    CHECK(std::count_if(plan.once.begin(), plan.once.end(), divides) == 1);
}

TEST_CASE("a product that is added up needs no step of its own") {
    const RowPlan plan = make_row_plan(row_program("softmax_backward", DType::f32), Isa::avx512);
    for (const RowStep& step : plan.passes.front().body) CHECK(step.op != RowOp::multiply);
}

TEST_CASE("columns without sums along rows stay in registers") {
    RowBuilder row;
    const RowValue x = row.tensor(DType::bf16), scale = row.column();
    row.store(DType::bf16, x * scale);
    row.add_to_column(x);
    const RowPlan plan = make_row_plan(row.spec(), Isa::avx512);
    CHECK(plan.by_strips);
    CHECK(plan.columns.size() == 2);
    // Where registers are few a strip as wide as a block comes first.
    const RowPlan narrow = make_row_plan(row.spec(), Isa::avx2);
    CHECK(narrow.columns.size() == 1);
    CHECK(narrow.unroll == 8);
}

TEST_CASE("a sum that a row adds to several times is one register, in however narrow a strip") {
    RowBuilder row;
    const RowValue x = row.tensor(DType::f32);
    const std::uint8_t sums = row.result(RowShape::column, DType::f32);
    for (int tap = 0; tap < 9; ++tap) {
        for (int pixel = 0; pixel < 2; ++pixel) {
            const RowValue product = row.at(x, pixel * 256) * row.at(x, (pixel + tap) * 256);
            row.write(RowOp::add_to_column, sums, tap * 256, product);
        }
    }
    for (const Isa isa : testing::generated_levels()) {
        const RowPlan plan = make_row_plan(row.spec(), isa);
        CHECK(plan.by_strips);
        CHECK(plan.columns.size() == 9);
    }
    CHECK_THROWS_AS(row.at(x, std::int64_t{1} << 31), std::invalid_argument);
}

TEST_CASE("single values that find no register wait on the stack") {
    RowBuilder row;
    RowValue x = row.tensor(DType::f32);
    for (int i = 0; i < 18; ++i) x = x * row.scalar();
    row.store(DType::f32, x);
    const RowPlan plan = make_row_plan(row.spec(), Isa::avx2);
    CHECK(plan.stack_vectors > 0);
    CHECK(plan.registers.total == 16);
}

TEST_CASE("the same operation on the same values is one instruction") {
    RowBuilder row;
    const RowValue x = row.tensor(DType::f32);
    row.store(DType::f32, (x + 1.0F) * (x + 1.0F));
    CHECK(row.spec().instructions.size() == 5);
}

TEST_CASE("what is no program is refused") {
    RowSpec spec;
    spec.operands.push_back({});
    spec.instructions.push_back({.op = RowOp::negate, .inputs = {0, kNoValue, kNoValue, kNoValue}});
    CHECK_THROWS_AS(validate(spec), std::invalid_argument);
    spec.instructions = {{.op = RowOp::load, .detail = 1}};
    CHECK_THROWS_AS(validate(spec), std::invalid_argument);
    spec.instructions = {{.op = RowOp::load}, {.op = RowOp::store, .inputs = {0, -1, -1, -1}}};
    CHECK_THROWS_AS(validate(spec), std::invalid_argument);  // an operand for reading
    RowBuilder one, other;
    const RowValue x = one.tensor(DType::f32), y = other.tensor(DType::f32);
    CHECK_THROWS_AS(x + y, std::invalid_argument);
    one.store_per_row(x);
    CHECK_THROWS_AS(one.spec(), std::invalid_argument);
    CHECK_THROWS_AS(row_program("softmin", DType::f32), std::invalid_argument);
}

TEST_CASE("random programs agree with the interpreter") {
    for (const Isa isa : testing::generated_levels()) {
        for (std::uint64_t seed = 1; seed <= 400; ++seed) {
            CAPTURE(seed);
            testing::Draw draw(seed);
            const testing::RowProgram program = testing::draw_row_program(draw);
            testing::RowProblem problem(program, draw);
            CHECK(problem.mismatch(RowKernel(program.spec, isa)) == "");
        }
    }
}

TEST_CASE("a result may lie on an operand that is used after it is stored") {
    RowBuilder row;
    const RowValue x = row.tensor(DType::f32), y = row.tensor(DType::f32);
    row.store(DType::f32, x + 1.0F);
    row.store(DType::f32, y * 2.0F);
    for (const Isa isa : testing::generated_levels()) {
        std::array<float, 40> first, second;
        first.fill(3);
        second.fill(5);
        RowArgs args{.rows = 1, .columns = 40};
        args.operands[0] = args.operands[3] = {first.data(), 0};
        args.operands[1] = args.operands[2] = {second.data(), 0};
        (*row_kernel(row.spec(), isa))(args);
        CHECK(first[39] == 10);
        CHECK(second[39] == 4);
    }
}

}  // namespace
}  // namespace dlprim
