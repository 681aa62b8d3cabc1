// Stores that go around the caches write what others write, and nothing else.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include <doctest/doctest.h>

#include "primitives/programs/row_programs.h"
#include "primitives/programs/row_tasks.h"
#include "row_problem.h"
#include "rows/row_builder.h"
#include "rows/row_kernel.h"

namespace dlprim {
namespace {

TEST_CASE("stores around the caches write what stores write") {
    constexpr std::int64_t kRows = 5, kColumns = 83, kStride = 96;
    struct alignas(64) Line {
        float values[16];
    };
    RowBuilder row;
    const RowValue x = row.tensor(DType::f32);
    row.store(DType::f32, x * highest(x));
    std::vector<Line> in(kRows * kStride / 16), out(in.size()), streamed(in.size());
    float* const values = in.front().values;
    for (std::int64_t i = 0; i < kRows * kStride; ++i) values[i] = static_cast<float>(i % 37);
    for (const Isa isa : testing::generated_levels()) {
        RowArgs args{.rows = kRows, .columns = kColumns};
        args.operands[0] = {values, kStride * 4};
        args.operands[1] = {out.data(), kStride * 4};
        RowKernel(row.spec(), isa)(args);
        args.operands[1].data = streamed.data();
        RowKernel(streaming(row.spec()), isa)(args);
        CHECK(std::memcmp(out.data(), streamed.data(), out.size() * sizeof(Line)) == 0);
    }
}

TEST_CASE("what lies in front of a cache line is not stored around the caches") {
    constexpr std::size_t kElements = 1 << 22, kInFront = 12;
    struct alignas(64) Line {
        float values[16];
    };
    RowBuilder row;
    row.store(DType::f32, row.tensor(DType::f32) * 2.0F);
    std::vector<Line> lines(kElements / 16 + 1);
    for (const Isa isa : testing::generated_levels()) {
        std::fill_n(lines.front().values, kElements, 3.0F);
        float* const first = lines.front().values + 16 - kInFront;
        RowArgs args{.rows = 1, .columns = kElements - 16};
        args.operands[0] = args.operands[1] = {first, 0};
        run_rows(*row_kernel(row.spec(), isa), args);
        CHECK(std::count(first, first + args.columns, 6.0F) == args.columns);
        CHECK(std::max(std::abs(first[-1] - 3), std::abs(first[args.columns] - 3)) == 0);
    }
}

}  // namespace
}  // namespace dlprim
