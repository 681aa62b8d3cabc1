// Parts of a row at distances from each other, and more values than there are registers.
#include <cstdint>
#include <stdexcept>
#include <vector>

#include <doctest/doctest.h>

#include "draw.h"
#include "rows/row_builder.h"
#include "rows/row_kernel.h"
#include "rows/row_plan.h"

namespace dlprim {
namespace {

// Products of the first and the last part, and so on: all are there before any is used.
RowSpec products_of_parts(std::int64_t count, std::int64_t distance) {
    RowBuilder row;
    const std::uint8_t from = row.parts(DType::bf16);
    const std::uint8_t to = row.result(RowShape::tensor, DType::f32);
    std::vector<RowValue> values;
    for (std::int64_t i = 0; i < count; ++i) {
        row.fetch(from, i * distance * 2);
        values.push_back(exp(row.load(from, i * distance * 2)));
    }
    for (std::int64_t i = 0; i < count; ++i) {
        const auto at = static_cast<std::size_t>(i);
        row.write(RowOp::store, to, i * distance * 4,
                  multiply_add(values[at], values[values.size() - 1 - at], 0.5F));
    }
    return row.spec();
}

TEST_CASE("values that find no register wait on the stack") {
    constexpr std::int64_t kParts = 40, kRows = 3, kDistance = 37;
    const RowSpec spec = products_of_parts(kParts, kDistance);
    const std::size_t size = kParts * kRows * kDistance;
    std::vector<std::uint16_t> x(size);
    testing::Draw draw(1);
    for (std::uint16_t& each : x) each = static_cast<std::uint16_t>(draw.from(0x3F00, 0x3FFF));
    for (const Isa isa : {Isa::avx2, Isa::avx512, Isa::avx512_bf16}) {
        CHECK(make_row_plan(spec, isa).stack_vectors > 0);
        if (isa > usable_isa()) continue;
        for (const std::int64_t columns : {1, 15, 16, 37}) {
            std::vector<float> expected(size, -1), made(size, -1);
            RowArgs args;
            args.rows = kRows;
            args.columns = columns;
            args.operands[0] = {x.data(), kParts * kDistance * 2};
            args.operands[1] = {expected.data(), kParts * kDistance * 4};
            RowKernel(spec, Isa::scalar)(args);
            args.operands[1].data = made.data();
            RowKernel(spec, isa)(args);
            for (std::size_t i = 0; i < size; ++i) CHECK(made[i] == doctest::Approx(expected[i]));
        }
    }
}

TEST_CASE("parts of a row are loaded as often as they are asked for") {
    RowBuilder row;
    const std::uint8_t parts = row.parts(DType::f32);
    row.store(DType::f32, row.load(parts, 16) + row.load(parts, 16));
    CHECK(row.spec().instructions.size() == 4);
    CHECK_THROWS_AS(row.load(parts, std::int64_t{1} << 31), std::invalid_argument);
}

}  // namespace
TEST_CASE("a program takes at most as many vectors together as it is told") {
    for (const std::int32_t most : {1, 2, 8}) {
        RowBuilder row;
        row.take_at_most(most);
        row.store(DType::f32, sum(row.tensor(DType::f32)));
        CHECK(make_row_plan(row.spec(), Isa::avx512).unroll == most);
    }
    for (const std::int32_t most : {0, 3}) {
        CHECK_THROWS_AS(RowBuilder().take_at_most(most), std::invalid_argument);
    }
}

TEST_CASE("places are of 4 or 8 bytes and have no numbers") {
    for (const int bytes : {3, 4}) {
        RowBuilder row;
        const RowValue x = row.listed_at_places(DType::f32, bytes), total = row.carried(0);
        row.carry(total, bytes == 3 ? total + x : multiply_add(x, row.number(), total));
        row.store(DType::f32, last(total));
        CHECK_THROWS_AS(row.spec(), std::invalid_argument);
    }
}

}  // namespace dlprim
