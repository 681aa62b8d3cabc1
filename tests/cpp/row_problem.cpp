#include "row_problem.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdlib>

#include "jit/element_reference.h"
#include "rows/row_reference.h"

namespace dlprim::testing {
namespace {

// Moderate numbers, and now and then what is none.
float drawn_number(Draw& draw) {
    constexpr std::array rare = {0.0F, -0.0F, INFINITY, -INFINITY, NAN, 1e-39F, -3e-41F, 2.0F};
    if (draw.once_in(40)) return draw.one_of(rare);
    return static_cast<float>(draw.from(-4000, 4000)) / 1000;
}

constexpr std::int64_t kMostListed = 4;  // for a row of the results

std::int64_t extent_of(const RowOperand& operand, std::int64_t rows, std::int64_t columns,
                       std::int64_t stride) {
    switch (operand.shape) {
        case RowShape::bits: return (rows - 1) * stride + (columns + 7) / 8;
        case RowShape::tensor:
        case RowShape::listed: return (rows - 1) * stride + columns;
        case RowShape::row: return (rows - 1) * stride + 1;
        case RowShape::column: return columns;
        default: return 1;
    }
}

// Elements from the operand's own to the farthest that the program looks at.
std::int64_t reach_of(const RowSpec& spec, std::size_t operand) {
    std::int64_t bytes = 0;
    for (const RowInstruction& it : spec.instructions) {
        if (it.detail == operand) bytes = std::max<std::int64_t>(bytes, it.offset);
    }
    return bytes / size_of(spec.operands[operand].dtype);
}

bool agree(float value, float expected, bool exact, DType dtype) {
    if (std::isnan(value) || std::isnan(expected)) {
        return std::isnan(value) == std::isnan(expected);
    }
    if (std::bit_cast<std::uint32_t>(value) == std::bit_cast<std::uint32_t>(expected)) return true;
    if (exact) return false;
    if (is_int8(dtype)) return std::abs(value - expected) <= 1;
    const bool is_half = dtype == DType::f16;
    const float unit = dtype == DType::bf16 ? 0x1p-7F : is_half ? 0x1p-10F : 0x1p-16F;
    const float least = is_half ? 0x1p-24F : 0x1p-140F;  // of subnormal numbers
    return std::abs(value - expected) <= unit * std::abs(expected) + least;
}

}  // namespace

RowProblem::RowProblem(const RowProgram& drawn, Draw& draw)
    : program(drawn),
      rows(draw.once_in(8) ? draw.from(5, 20) : draw.from(1, 4)),
      columns(draw.once_in(10) ? draw.from(200, 9000) : draw.extent()),
      fence(draw.once_in(3) ? Fence::before : Fence::after),
      listed_stride(columns + draw.from(0, 20)) {
    for (std::int64_t row = 0; row < rows; ++row) {
        counts.push_back(draw.from(0, kMostListed));
        for (std::int64_t i = counts.back(); i > 0; --i) {
            const auto factor = static_cast<std::int32_t>(factors.size());
            factors.push_back(drawn_number(draw));
            list.push_back({draw.from(0, rows - 1) * listed_stride, drawn_number(draw), factor});
        }
    }
    list.push_back({});
    for (const RowOperand& operand : program.spec.operands) {
        const bool bits = operand.shape == RowShape::bits;
        const std::int64_t width = operand.shape == RowShape::row ? 1
                                   : bits                         ? (columns + 7) / 8
                                                                  : columns;
        strides.push_back(width + (draw.once_in(2) ? 0 : draw.from(1, 20)));
        if (operand.shape == RowShape::listed) strides.back() = listed_stride;
        const std::int64_t count = extent_of(operand, rows, columns, strides.back()) +
                                   reach_of(program.spec, actual.size());
        actual.emplace_back(count, operand.dtype, fence);
        expected.emplace_back(count, operand.dtype, fence);
        for (std::int64_t i = 0; i < count; ++i) {
            if (operand.written && operand.shape != RowShape::column) break;
            if (bits) {
                actual.back().set(i, static_cast<std::uint32_t>(draw.from(0, 255)));
            } else {
                set_element(operand.dtype, actual.back().data(), i, drawn_number(draw));
            }
            expected.back().set(i, actual.back().at(i));
        }
    }
}

Elements RowProblem::places() const {
    const std::int64_t halves = program.spec.place_bytes / size_of(DType::s32);
    Elements made((std::ssize(list) - 1) * halves, DType::s32, Fence::after);
    made.clear();
    for (std::int64_t i = 0; i < made.count(); i += halves) {
        const auto& entry = list[static_cast<std::size_t>(i / halves)];
        std::int64_t row = entry.element / listed_stride;
        const std::int64_t number = i / halves;
        if (row == 0 && number % 3 > 0) row = number % 3 == 1 ? rows : -1;  // taken for the first
        made.set(i, static_cast<std::uint32_t>(row));
        if (halves == 2) made.set(i + 1, static_cast<std::uint32_t>(row >> 32));
    }
    return made;
}

std::string RowProblem::mismatch(const RowKernel& kernel) {
    const Elements placed = places();
    RowArgs args{.list = list.data(),
                 .factors = factors.data(),
                 .counts = counts.data(),
                 .places = placed.data(),
                 .places_end = static_cast<char*>(placed.data()) + placed.count() * 4,
                 .extent = rows,
                 .distance = listed_stride,
                 .rows = rows,
                 .columns = columns};
    if (!is_listed(program.spec)) args.counts = nullptr;
    std::vector<float> scratch(static_cast<std::size_t>(kernel.scratch_floats(columns)) + 16);
    const auto address = reinterpret_cast<std::uintptr_t>(scratch.data());
    args.scratch = scratch.data() + (64 - address % 64) % 64 / 4;
    const auto point_at = [&](const std::vector<Elements>& operands) {
        for (std::size_t i = 0; i < operands.size(); ++i) {
            const std::int64_t size = size_of(program.spec.operands[i].dtype);
            args.operands.at(i) = {operands[i].data(), strides[i] * size};
        }
    };
    point_at(expected);
    reference_rows(program.spec, args);
    point_at(actual);
    kernel(args);
    for (std::size_t i = 0; i < actual.size(); ++i) {
        const DType dtype = program.spec.operands[i].dtype;
        for (std::int64_t at = 0; at < actual[i].count(); ++at) {
            const float value = element_at(dtype, actual[i].data(), at);
            const float wanted = element_at(dtype, expected[i].data(), at);
            if (agree(value, wanted, program.exact[i], dtype)) continue;
            return "operand " + std::to_string(i) + ", element " + std::to_string(at) + ": " +
                   std::to_string(value) + ", expected " + std::to_string(wanted) + " (" +
                   std::to_string(rows) + " rows, " + std::to_string(columns) + " columns)";
        }
    }
    return "";
}

std::vector<Isa> generated_levels() {
    std::vector<Isa> levels;
    for (const Isa isa : {Isa::avx2, Isa::avx512, Isa::avx512_bf16}) {
        if (isa <= usable_isa()) levels.push_back(isa);
    }
    return levels;
}

}  // namespace dlprim::testing
