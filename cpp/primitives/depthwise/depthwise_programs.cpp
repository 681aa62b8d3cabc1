#include "primitives/depthwise/depthwise_programs.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "jit/element_reference.h"
#include "jit/isa.h"
#include "primitives/tensor/quantization.h"
#include "rows/row_builder.h"

namespace dlprim {
namespace {

constexpr std::int64_t kMostResults = 7;  // divides the widths 7, 14, 28, 56, 112

// Columns from the first one under a tile on, whether they exist or not.
std::int64_t width_of(const DepthwiseTile& it) {
    return (it.results - 1) * it.step + std::max<std::int64_t>(it.taps - 1, 0) * it.spread + 1;
}

// body(column, result, tap), column by column, so that each result meets its taps in their order.
template <class Body>
void for_products(const DepthwiseTile& it, const Body& body) {
    for (std::int64_t column = it.columns.begin; column < it.columns.end; ++column) {
        for (std::int64_t tap = 0; tap < it.taps; ++tap) {
            const std::int64_t behind = column - tap * it.spread;
            if (behind < 0 || behind % it.step != 0 || behind / it.step >= it.results) continue;
            body(column, behind / it.step, tap);
        }
    }
}

using Sums = std::vector<std::optional<RowValue>>;  // none of no products

struct Result {
    RowOp op;
    RowShape shape;
    DType dtype;
};

void write_each(RowBuilder& row, const Result& as, std::int64_t distance, const Sums& values) {
    const std::uint8_t to = row.result(as.shape, as.dtype);
    std::int64_t offset = 0;
    for (const auto& value : values) {
        row.write(as.op, to, offset, value.value_or(0.0F));
        offset += distance;
    }
}

void scale(RowBuilder& row, Sums& sums, const DepthwiseEpilogue& it) {
    const RowValue scale = row.column();
    for (auto& sum : sums) sum = *sum * scale;
    if (!it.bias) return;
    const RowValue bias = row.column();
    for (auto& sum : sums) sum = *sum + bias;
}

// What an 8-bit result has in front of its zero point; a store rounds and bounds by itself.
void bound_and_shift(RowBuilder& row, Sums& results, const DepthwiseEpilogue& epilogue) {
    if (epilogue.is_bounded) {
        const RowValue lowest = row.scalar(), highest = row.scalar();
        for (auto& it : results) it = smaller(highest, larger(lowest, *it));
    }
    if (!epilogue.is_shifted) return;
    const RowValue zero = row.scalar();
    for (auto& it : results) it = nearest(*it) + zero;
}

void finish(RowBuilder& row, DType dtype, Sums& sums, const DepthwiseDistances& apart,
            const DepthwiseEpilogue& it) {
    const bool to_bytes = it.quantized && is_int8(dtype);
    if (it.quantized) scale(row, sums, it);
    if (it.residual) {
        const RowValue residual = row.tensor(dtype);
        const RowValue factor = to_bytes ? row.scalar() : RowValue(1.0F);
        std::int64_t offset = 0;
        for (auto& sum : sums) {
            const RowValue more = row.at(residual, offset);
            sum = sum.value_or(0.0F) + (to_bytes ? more * factor : more);
            offset += apart.dst_pixel;
        }
    }
    const auto of_nothing = static_cast<float>(activated(it.activation, 0.0));
    Sums results;
    for (const auto& sum : sums) {
        results.emplace_back(sum ? activated(it.activation, *sum) : of_nothing);
    }
    if (to_bytes) bound_and_shift(row, results, it);
    write_each(row, {RowOp::store, RowShape::tensor, dtype}, apart.dst_pixel, results);
    if (!it.relu_mask) return;
    write_each(row, {RowOp::store_bits, RowShape::bits, DType::u8}, apart.mask_pixel, sums);
}

// What the next row of results will be the first to read, but with steps so long that most of it is
// read by none.
void fetch_rows(RowBuilder& row, const DepthwiseTile& tile, std::int64_t rows,
                const DepthwiseDistances& apart) {
    constexpr std::uint8_t kSrc = 0;
    constexpr std::int64_t kMostFetched = 64;
    const std::int64_t end = std::min(tile.columns.end, tile.results * tile.step);
    if (apart.fetched_rows * (end - tile.columns.begin) > kMostFetched) return;
    for (std::int64_t r = 0; r < apart.fetched_rows; ++r) {
        const std::int64_t below = (rows - 1) * apart.src_row + (r + 1) * apart.fetched_row;
        for (std::int64_t column = tile.columns.begin; column < end; ++column) {
            row.fetch(kSrc, below + column * apart.src_pixel);
        }
    }
}

}  // namespace

RowSpec convolution_program(DType dtype, const DepthwiseTile& tile, const DepthwiseSums& part,
                            const DepthwiseDistances& apart, const DepthwiseEpilogue& epilogue) {
    RowBuilder row;
    const RowValue src = row.tensor(dtype);
    const RowValue weights = row.tensor(weights_type(dtype));
    Sums sums(static_cast<std::size_t>(tile.results));
    if (!part.begin || epilogue.begins_with_bias()) {
        const RowValue first = row.tensor(DType::f32);
        std::int64_t offset = 0;
        for (auto& sum : sums) {
            sum = row.at(first, offset);
            if (!part.begin) offset += apart.sums_pixel;
        }
    }
    for (std::int64_t r = 0; r < part.rows; ++r) {
        for_products(tile, [&](std::int64_t column, std::int64_t result, std::int64_t tap) {
            const RowValue x = row.at(src, r * apart.src_row + column * apart.src_pixel);
            const RowValue w = row.at(weights, r * apart.weights_row + tap * apart.weights_tap);
            auto& sum = sums[static_cast<std::size_t>(result)];
            sum = sum ? multiply_add(x, w, *sum) : x * w;
        });
    }
    if (part.end) fetch_rows(row, tile, part.rows, apart);
    if (part.end) {
        finish(row, epilogue.quantized ? epilogue.dst : dtype, sums, apart, epilogue);
    } else {
        write_each(row, {RowOp::store, RowShape::tensor, DType::f32}, apart.sums_pixel, sums);
    }
    return row.spec();
}

RowSpec correlation_program(DType dtype, const DepthwiseTile& tile, std::int64_t rows,
                            const DepthwiseDistances& apart) {
    RowBuilder row;
    const RowValue src = row.tensor(dtype), diff = row.tensor(dtype);
    const std::uint8_t sums = row.result(RowShape::column, DType::f32);
    for (std::int64_t r = 0; r < rows; ++r) {
        for_products(tile, [&](std::int64_t column, std::int64_t result, std::int64_t tap) {
            row.write(RowOp::add_to_column, sums, r * apart.weights_row + tap * apart.weights_tap,
                      row.at(src, r * apart.src_row + column * apart.src_pixel) *
                          row.at(diff, result * apart.dst_pixel));
        });
    }
    return row.spec();
}

std::vector<DepthwiseRun> runs_of(const DepthwiseTile& row, std::int64_t together) {
    std::vector<DepthwiseRun> runs;
    const std::int64_t tiles = (row.results + together - 1) / together;
    for (std::int64_t i = 0; i < tiles; ++i) {
        const Range results = chunk(row.results, tiles, i);
        DepthwiseTile tile = row;
        tile.results = results.size();
        const std::int64_t column = results.begin * row.step, width = width_of(tile);
        tile.columns = {std::clamp<std::int64_t>(row.columns.begin - column, 0, width),
                        std::clamp<std::int64_t>(row.columns.end - column, 0, width)};
        if (!runs.empty() && runs.back().tile == tile) {
            ++runs.back().count;
        } else {
            runs.push_back({results.begin, 1, tile});
        }
    }
    return runs;
}

std::int64_t convolved_together(const DepthwiseTile& row) {
    const Isa isa = usable_isa();
    // A column, a bias, what an activation needs, or a store and an operand.
    constexpr std::int64_t kOthers = 6;
    if (isa == Isa::scalar) return kMostResults;
    for (std::int64_t results = kMostResults;; --results) {
        const std::int64_t weights = std::min(row.taps, (results - 1) * row.step / row.spread + 1);
        if (results == 1 || results + weights + kOthers <= vector_file(isa).registers) {
            return results;
        }
    }
}

Correlated correlated_together() {
    const Isa isa = usable_isa();
    const bool many = isa == Isa::scalar || vector_file(isa).registers > 16;
    return many ? Correlated{kMostResults, 5} : Correlated{3, 3};
}

}  // namespace dlprim
