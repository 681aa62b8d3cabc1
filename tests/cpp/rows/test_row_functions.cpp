// Elementary functions: plans on any machine, and that generated code and interpreter agree, also
// where elements are rare.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "rows/emit_rows.h"
#include "rows/functions/elementary.h"
#include "rows/functions/rare_function.h"
#include "rows/row_builder.h"
#include "rows/row_kernel.h"
#include "rows/row_plan.h"

namespace dlprim {
namespace {

RowSpec program(RowValue (*function)(RowValue)) {
    RowBuilder row;
    row.store(DType::f32, function(row.tensor(DType::f32)));
    return row.spec();
}

RowSpec program(RowValue (*function)(RowValue, RowValue)) {
    RowBuilder row;
    const RowValue a = row.tensor(DType::f32), b = row.tensor(DType::f32);
    row.store(DType::f32, function(a, b));
    return row.spec();
}

std::vector<RowSpec> programs() {
    std::vector<RowSpec> made;
    for (const auto function :
         {floor, ceil,  trunc, sign,  exp2,  exp10, expm1,    sinh, cosh,   mish,
          log1p, log2,  log10, asinh, acosh, atanh, softplus, sin,  cos,    tan,
          sinpi, cospi, asin,  acos,  atan,  cbrt,  erf,      erfc, normcdf})
        made.push_back(program(function));
    for (const auto function : {copysign, fmod, remainder, fdim, atan2, pow, hypot})
        made.push_back(program(function));
    return made;
}

TEST_CASE("every function becomes code of every level") {
    for (const RowSpec& spec : programs()) {
        for (const Isa isa : {Isa::avx2, Isa::avx512}) {
            CAPTURE(to_string(spec));
            const RowPlan plan = make_row_plan(spec, isa);
            CHECK(plan.registers.total <= vector_file(isa).registers);
            CHECK_FALSE(emit_rows(plan).empty());
        }
    }
}

TEST_CASE("a function has fewer terms where bfloat16 alone takes its results") {
    const auto narrow_steps = [](bool kept_whole) {
        RowBuilder row;
        const RowValue y = activated(Activation::gelu, row.tensor(DType::bf16));
        row.store(DType::bf16, y);
        if (kept_whole) row.store(DType::f32, y);
        const RowPlan plan = make_row_plan(row.spec(), Isa::avx2);
        const std::vector<RowStep>& body = plan.passes.front().body;
        return std::count_if(body.begin(), body.end(), [](const RowStep& it) { return it.narrow; });
    };
    CHECK(narrow_steps(false) == 1);
    CHECK(narrow_steps(true) == 0);
}

TEST_CASE("generated code calls rare functions for the elements that are rare") {
    constexpr std::int64_t kColumns = 1003;
    for (const RareFunction function : {RareFunction::sin, RareFunction::cos, RareFunction::tan}) {
        RowBuilder row;
        const RowValue x = row.tensor(DType::f32);
        row.store(DType::f32, unless_rare(function, x, x + 1.0F, x, x));
        std::vector<float> operand(kColumns), found(kColumns);
        for (std::size_t i = 0; i < operand.size(); ++i)
            operand[i] = static_cast<float>(i % 7 == 0 ? 1e6 + static_cast<double>(i) : 0.5);
        RowArgs args;
        args.rows = 1;
        args.columns = kColumns;
        args.operands[0] = {operand.data(), 0};
        args.operands[1] = {found.data(), 0};
        (*row_kernel(row.spec()))(args);
        for (std::size_t i = 0; i < operand.size(); ++i) {
            const float right =
                i % 7 == 0 ? rare_value(function, operand[i], operand[i]) : operand[i] + 1;
            CHECK(found[i] == right);
        }
    }
}

TEST_CASE("remainders of huge quotients are exact") {
    CHECK(rare_value(RareFunction::fmod, 1e30F, 7) == std::fmod(1e30F, 7.0F));
    std::array<float, 24> operands{};
    operands[3] = 1e20F;
    operands[11] = 3;
    replace_rare(operands.data(), 1U << 3, 8, static_cast<std::uint32_t>(RareFunction::fmod));
    CHECK(operands[19] == std::fmod(1e20F, 3.0F));
}

}  // namespace
}  // namespace dlprim
