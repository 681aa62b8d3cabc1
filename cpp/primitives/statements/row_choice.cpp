#include "primitives/statements/row_choice.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <utility>

#include "primitives/statements/bound_statement.h"

namespace dlprim {
namespace {

// What is written out in a program: so far away.
constexpr std::int64_t kMostDistance = std::int64_t{1} << 28;  // bytes
// Rows that make up for a call.
constexpr std::int64_t kEnoughRows = 64;
constexpr double kLanes = 16;

}  // namespace

std::int64_t elements_of(const BoundStatement& it, const BoundOperand& operand) {
    std::int64_t elements = 1;
    for (std::size_t i = 0; i < it.indices.size(); ++i) {
        if (operand.strides[i] != 0) elements *= it.indices[i].extent;
    }
    return elements;
}

bool lies_well(const BoundOperand& operand, std::size_t column) {
    if (operand.strides[column] == 0) return operand.dtype == DType::f32;
    return operand.strides[column] == 1;
}

bool can_be_written_out(const BoundStatement& it, std::size_t index) {
    return std::all_of(it.operands.begin(), it.operands.end(), [&](const BoundOperand& operand) {
        return std::abs(operand.strides[index]) * it.indices[index].extent < kMostDistance;
    });
}

std::vector<std::size_t> written_out(const BoundStatement& it, std::size_t kept,
                                     std::int64_t most) {
    std::vector<std::size_t> all, taken;
    for (std::size_t i = 0; i < it.indices.size(); ++i) {
        if (i != kept && it.indices[i].reduced && can_be_written_out(it, i)) all.push_back(i);
    }
    std::stable_sort(all.begin(), all.end(), [&](std::size_t a, std::size_t b) {
        return it.indices[a].extent < it.indices[b].extent;
    });
    most = std::min(most, kMostInstructions / length_of(it.value));
    for (const std::size_t i : all) {
        if (it.indices[i].extent > most) break;
        most /= it.indices[i].extent;
        taken.push_back(i);
    }
    return taken;
}

std::size_t longest_reduced(const BoundStatement& it) {
    std::size_t found = PassRoles::kNone;
    for (std::size_t i = 0; i < it.indices.size(); ++i) {
        if (!it.indices[i].reduced) continue;
        if (found == PassRoles::kNone || it.indices[i].extent > it.indices[found].extent) found = i;
    }
    return found;
}

std::size_t best_row(const BoundStatement& it, std::size_t column,
                     const std::vector<std::size_t>& taken) {
    std::size_t found = PassRoles::kNone;
    const auto is_better = [&](std::size_t a, std::size_t b) {
        const std::int64_t one = std::min(it.indices[a].extent, kEnoughRows);
        const std::int64_t other = std::min(it.indices[b].extent, kEnoughRows);
        return one != other ? one > other : it.result.strides[a] < it.result.strides[b];
    };
    for (std::size_t i = 0; i < it.indices.size(); ++i) {
        if (i == column || it.indices[i].reduced) continue;
        if (std::find(taken.begin(), taken.end(), i) != taken.end()) continue;
        if (found == PassRoles::kNone || is_better(i, found)) found = i;
    }
    return found;
}

double cost_of(const RowWork& work) {
    constexpr double kRow = 4, kRowSum = 10, kCall = 40;
    const double vectors = std::ceil(work.columns / kLanes);
    return work.rows * (work.bodies * vectors + kRow + work.sums * kRowSum) +
           work.rows / work.rows_of_call * kCall;
}

// In vectors that are computed, or copied, or in the time of these.
RowChoice choice_for(const BoundStatement& it, std::size_t column) {
    constexpr double kCopied = 8;
    RowChoice choice{.column = column};
    if (it.indices[column].reduced) {
        if (it.reduction == Reduction::product) {
            choice.cost = std::numeric_limits<double>::infinity();
            return choice;
        }
        choice.kind = RowWalk::along_rows;
    } else if (extent_of(it, true) > 1) {
        const auto taken = written_out(it, PassRoles::kNone, kMostPlaces);
        const auto reduced = std::count_if(it.indices.begin(), it.indices.end(),
                                           [](const IndexRange& index) { return index.reduced; });
        const bool all = std::cmp_equal(taken.size(), reduced);
        choice.kind = all ? RowWalk::map : RowWalk::down_columns;
    }
    const bool sums_along = choice.kind == RowWalk::along_rows;
    std::int64_t most_rows = 1;
    for (std::size_t i = 0; i < it.indices.size(); ++i) {
        const bool can_be_row =
            sums_along || it.indices[i].reduced == (choice.kind == RowWalk::down_columns);
        if (i != column && can_be_row) most_rows = std::max(most_rows, it.indices[i].extent);
    }
    const auto columns = static_cast<double>(it.indices[column].extent);
    const double rows = static_cast<double>(extent_of(it, true)) *
                        static_cast<double>(extent_of(it, false)) / columns;
    choice.cost = cost_of({.rows = rows,
                           .rows_of_call = static_cast<double>(most_rows),
                           .columns = columns,
                           .sums = sums_along ? 1.0 : 0.0});
    const auto copied = [&](const BoundOperand& operand) {
        return static_cast<double>(elements_of(it, operand)) / kLanes * kCopied;
    };
    for (const BoundOperand& operand : it.operands) {
        if (!lies_well(operand, column)) choice.cost += copied(operand);
    }
    if (!sums_along && it.result.strides[column] != 1) choice.cost += copied(it.result);
    return choice;
}

RowChoice best_choice(const BoundStatement& it) {
    RowChoice best{.cost = std::numeric_limits<double>::infinity()};
    for (std::size_t i = 0; i < it.indices.size(); ++i) {
        const RowChoice choice = choice_for(it, i);
        if (choice.cost < best.cost) best = choice;
    }
    return best;
}

}  // namespace dlprim
