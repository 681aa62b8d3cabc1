// Rows of every length around those of vectors: what is taken along them.
#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include <doctest/doctest.h>

#include "row_problem.h"
#include "rows/row_builder.h"
#include "rows/row_kernel.h"

namespace dlprim {
namespace {

constexpr std::int64_t kMost = 40, kRows = 5;
constexpr float kBehind = std::numeric_limits<float>::quiet_NaN();

// Sums that are taken in a first and in a second pass, extremes, and a column: all are exact.
RowSpec taken_along_rows() {
    RowBuilder row;
    const RowValue x = row.tensor(DType::f32), total = sum(x);
    row.store_per_row(total);
    row.store_per_row(highest(x));
    row.store_per_row(lowest(x));
    row.store_per_row(sum(x + total));
    row.store(DType::f32, x + total);
    row.add_to_column(x);
    return row.spec();
}

void check_length(const RowKernel& kernel, std::int64_t columns) {
    std::vector<float> x(kMost * kRows, kBehind), y(x.size(), 7), column(kMost, 1);
    std::array<std::array<float, kRows>, 4> taken = {};
    for (std::int64_t i = 0; i < kMost * kRows; ++i) {
        if (i % kMost < columns)
            x[static_cast<std::size_t>(i)] = static_cast<float>(i * 7 % 31 - 9);
    }
    RowArgs args{.rows = kRows, .columns = columns};
    args.operands[0] = {x.data(), kMost * 4};
    for (std::size_t k = 0; k < taken.size(); ++k) args.operands[1 + k] = {taken[k].data(), 4};
    args.operands[5] = {y.data(), kMost * 4};
    args.operands[6] = {column.data(), 0};
    kernel(args);
    for (std::int64_t i = 0; i < kRows; ++i) {
        const float* const begin = x.data() + i * kMost;
        const float total = std::accumulate(begin, begin + columns, 0.0F);
        const auto at = static_cast<std::size_t>(i);
        CHECK(taken[0][at] == total);
        CHECK(taken[1][at] == *std::max_element(begin, begin + columns));
        CHECK(taken[2][at] == *std::min_element(begin, begin + columns));
        CHECK(taken[3][at] == total * static_cast<float>(columns + 1));
        for (std::int64_t k = 0; k < kMost; ++k) {
            const float expected = k < columns ? begin[k] + total : 7;
            CHECK(y[static_cast<std::size_t>(i * kMost + k)] == expected);
        }
    }
    for (std::int64_t k = 0; k < kMost; ++k) {
        float expected = 1;
        for (std::int64_t i = 0; k < columns && i < kRows; ++i) {
            expected += x[static_cast<std::size_t>(i * kMost + k)];
        }
        CHECK(column[static_cast<std::size_t>(k)] == expected);
    }
}

TEST_CASE("what is taken along short rows is of their elements alone") {
    for (const Isa isa : testing::generated_levels()) {
        const RowKernel kernel(taken_along_rows(), isa);
        for (std::int64_t columns = 1; columns <= kMost; ++columns) {
            CAPTURE(columns);
            check_length(kernel, columns);
        }
    }
}

}  // namespace
}  // namespace dlprim
