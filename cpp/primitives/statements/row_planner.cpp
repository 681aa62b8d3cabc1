#include "primitives/statements/row_planner.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <utility>

#include "primitives/statements/bound_statement.h"
#include "primitives/statements/divided_value.h"
#include "primitives/statements/row_choice.h"
#include "primitives/statements/row_expression.h"
#include "primitives/tensor/partition.h"

namespace dlprim {
namespace {

using Memory = RowStatement::Memory;

// Elements of a chain of a sum down columns where that is cut.
constexpr std::int64_t kLeastChain = 256, kMostChain = 1024;
constexpr std::int64_t kFoldedRows = 8;
constexpr std::int64_t kWrittenOut = 16;  // of a sum that is too long for one program
constexpr std::int64_t kWideColumns = 512;

// From the outside in: by the distances of an operand, and `last` at the end.
std::vector<std::size_t> order_of(const BoundOperand& operand, std::size_t last) {
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < operand.strides.size(); ++i) {
        if (i != last && operand.strides[i] != 0) order.push_back(i);
    }
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
        return std::abs(operand.strides[a]) > std::abs(operand.strides[b]);
    });
    if (last < operand.strides.size()) order.push_back(last);
    return order;
}

// One that Reorder does: another order of the same elements.
bool is_copy(const BoundStatement& it) {
    if (it.value.kind != Expression::Kind::read || extent_of(it, true) != 1) return false;
    if (!it.initializes && it.reduction != Reduction::none) return false;
    const BoundOperand& from = it.operands[static_cast<std::size_t>(it.value.number)];
    const bool rounds = from.dtype == DType::f32 && it.result.dtype == DType::bf16;
    if (from.dtype != it.result.dtype && !rounds) return false;
    for (std::size_t i = 0; i < it.indices.size(); ++i) {
        const std::int64_t a = from.strides[i], b = it.result.strides[i];
        if (a == 0 || b == 0 || (a == 1 && b == 1)) return false;
    }
    return !it.indices.empty();
}

Layout layout_of(const BoundStatement& it, const BoundOperand& operand,
                 const std::vector<std::size_t>& order) {
    // Where elements only move, halves are halves.
    Layout made{.dtype = operand.dtype == DType::f16 ? DType::bf16 : operand.dtype};
    for (const std::size_t i : order) {
        const std::int64_t extent = it.indices[i].extent;
        made.dimensions.push_back(
            {static_cast<char>('A' + i), extent, {{extent, operand.strides[i]}}});
    }
    return made;
}

}  // namespace

void RowPlanner::plan(PlacedStatement statement) {
    BoundStatement& it = statement.it;
    if (extent_of(it, false) == 0) return;
    if (extent_of(it, true) == 0) {
        if (!it.initializes) return;
        for (std::size_t i = it.indices.size(); i-- > 0;) {
            if (it.indices[i].reduced) remove_index(it, i);
        }
        it.value = {.number = identity_of(it.reduction)};
        it.reduction = Reduction::none;
        it.operands.clear();
        statement.operands.clear();
    }
    simplify(it);
    if (is_copy(it)) return copy(statement);
    divide(statement);
    const bool has_rows = it.reduction != Reduction::product && !it.indices.empty();
    if (!has_rows && extent_of(it, false) == 1) {
        const std::size_t added = add_index(it, {.name = "", .extent = 1});
        it.result.strides[added] = 1;
        for (BoundOperand& operand : it.operands) operand.strides[added] = 1;
    }
    const RowChoice choice = best_choice(it);
    copy_operands(statement, choice.column);
    pass(statement, choice);
}

BoundOperand RowPlanner::scratch_for(const BoundStatement& it,
                                     const std::vector<std::size_t>& order, DType dtype,
                                     Memory& memory) {
    BoundOperand made{.dtype = dtype, .strides = std::vector<std::int64_t>(it.indices.size())};
    std::int64_t stride = 1;
    for (auto index = order.rbegin(); index != order.rend(); ++index) {
        made.strides[*index] = stride;
        stride *= it.indices[*index].extent;
    }
    memory = {Memory::Of::scratch, scratch_bytes};
    scratch_bytes += aligned(stride * size_of(dtype));
    return made;
}

void RowPlanner::copy(const PlacedStatement& statement) {
    const BoundStatement& it = statement.it;
    const auto operand = static_cast<std::size_t>(it.value.number);
    const BoundOperand& from = it.operands[operand];
    const auto order = order_of(it.result, PassRoles::kNone);
    RowStatement::Copy made{
        .reorder = Reorder(layout_of(it, from, order), layout_of(it, it.result, order)),
        .from = from.offset * size_of(from.dtype),
        .to = it.result.offset * size_of(it.result.dtype)};
    const Memory& memory = statement.operands[operand];
    std::string described =
        memory.of == Memory::Of::operand ? "operand " + std::to_string(memory.place) : "a part";
    described += " copied in the order";
    for (const std::size_t i : order) described += " " + it.indices[i].name;
    described += " (" + std::to_string(elements_of(it, from)) + " elements)";
    steps.push_back({std::move(made), {memory}, statement.result, std::move(described)});
}

void RowPlanner::copy_operands(PlacedStatement& statement, std::size_t column) {
    BoundStatement& it = statement.it;
    for (std::size_t i = 0; i < it.operands.size(); ++i) {
        if (lies_well(it.operands[i], column)) continue;
        const bool moves = it.operands[i].strides[column] != 0;
        const DType dtype = moves ? it.operands[i].dtype : DType::f32;
        PlacedStatement copied{.it = {.indices = it.indices, .operands = {it.operands[i]}},
                               .operands = {statement.operands[i]}};
        copied.it.value = read_of(0);
        const auto order = order_of(it.operands[i], moves ? column : PassRoles::kNone);
        it.operands[i] = plan_to_scratch(std::move(copied), order, dtype, statement.operands[i]);
    }
}

// For all values of the indices in `order`, which are those of the operands.
BoundOperand RowPlanner::plan_to_scratch(PlacedStatement statement,
                                         const std::vector<std::size_t>& order, DType dtype,
                                         Memory& memory) {
    BoundStatement& it = statement.it;
    it.result = scratch_for(it, order, dtype, statement.result);
    memory = statement.result;
    BoundOperand made = it.result;
    for (std::size_t i = it.indices.size(); i-- > 0;) {
        if (made.strides[i] == 0) remove_index(it, i);
    }
    for (IndexRange& index : it.indices) index.reduced = false;
    plan(std::move(statement));
    return made;
}

// A program has so many operands: parts of a value that reads more are temporaries.
void RowPlanner::divide(PlacedStatement& statement) {
    BoundStatement& it = statement.it;
    // The result is an operand, too, and one more where it is read before it is written.
    const int most = kMostRowOperands - (it.reduction == Reduction::none ? 1 : 2);
    if (std::ssize(it.operands) <= most) return;
    Expression value = std::move(it.value);
    divide(statement, value, static_cast<std::size_t>(most));
    it.value = std::move(value);
    keep_operands_read(statement);
}

// What the value reads then.
std::set<std::size_t> RowPlanner::divide(PlacedStatement& statement, Expression& value,
                                         std::size_t most) {
    if (value.kind == Expression::Kind::read) return operands_read(value);
    std::set<std::size_t> all;
    for (Expression& operand : value.operands) all.merge(divide(statement, operand, most));
    while (all.size() > most) {
        Expression& part = operand_that_reads_most(value);
        part = temporary(statement, std::move(part));
        all = operands_read(value);
    }
    return all;
}

// Float32, which a program computes in.
Expression RowPlanner::temporary(PlacedStatement& statement, Expression value) {
    BoundStatement& it = statement.it;
    const std::size_t column = best_choice(it).column;
    Expression made = read_of(std::ssize(it.operands));
    made.is_integer = is_integer_value(value);
    PlacedStatement part{.it = {.indices = it.indices, .operands = it.operands},
                         .operands = statement.operands};
    part.it.value = std::move(value);
    keep_operands_read(part);
    BoundOperand farthest{.strides = std::vector<std::int64_t>(it.indices.size())};
    for (const BoundOperand& operand : part.it.operands) {
        for (std::size_t i = 0; i < it.indices.size(); ++i) {
            farthest.strides[i] = std::max(farthest.strides[i], std::abs(operand.strides[i]));
        }
    }
    const bool moves = !it.indices.empty() && farthest.strides[column] != 0;
    const auto order = order_of(farthest, moves ? column : PassRoles::kNone);
    Memory& memory = statement.operands.emplace_back();
    it.operands.push_back(plan_to_scratch(std::move(part), order, DType::f32, memory));
    return made;
}

void RowPlanner::pass(const PlacedStatement& statement, const RowChoice& choice) {
    const BoundStatement& it = statement.it;
    const std::size_t column = choice.column;
    const std::int64_t columns = it.indices[column].extent, reduced = extent_of(it, true);
    const bool sums_along = choice.kind == RowWalk::along_rows;
    const bool is_sum = choice.kind != RowWalk::map;
    const bool fits = (!is_sum || it.result.dtype == DType::f32) &&
                      (sums_along ? reduced == columns : it.result.strides[column] == 1);
    if (!fits) return pass_to_scratch(statement, choice);
    PassRoles roles{.kind = choice.kind, .column = column};
    if (sums_along) {
        if (takes_parts(extent_of(it, false), columns))
            return pass_in_parts(statement, choice, column, kPartColumns);
    } else if (is_sum) {
        roles.row = longest_reduced(it);
        if (reduced <= kMostChain) return pass_in_turns(statement, roles);
        const auto root = static_cast<std::int64_t>(std::sqrt(reduced));
        const std::int64_t chain = std::clamp(root, kLeastChain, kMostChain);
        const std::int64_t part = chain * it.indices[roles.row].extent / reduced;
        return pass_in_parts(statement, choice, roles.row, std::max<std::int64_t>(part, 1));
    } else {
        roles.unrolled = written_out(it, PassRoles::kNone, kMostPlaces);
    }
    roles.row = best_row(it, column, roles.unrolled);
    emit(statement, roles);
}

// Down columns. Sums of few columns stay in registers. Of what does not, several rows are joined at
// a time: memory is read along rows then.
void RowPlanner::pass_in_turns(const PlacedStatement& statement, PassRoles roles) {
    const BoundStatement& it = statement.it;
    const std::int64_t rows = it.indices[roles.row].extent;
    roles.unrolled = written_out(it, roles.row, kWrittenOut);
    const bool is_sum = it.reduction == Reduction::sum;
    const bool is_narrow = is_sum && it.indices[roles.column].extent < kWideColumns;
    const bool cuts = !is_narrow && roles.unrolled.empty() && rows > kFoldedRows &&
                      can_be_written_out(it, roles.row);
    roles.keeps_sums = is_sum && !cuts;
    if (!cuts) return emit(statement, roles);
    PlacedStatement part = statement;
    const std::int64_t whole = rows / kFoldedRows * kFoldedRows;
    part.it = cut(restricted(it, roles.row, 0, whole), roles.row, kFoldedRows);
    roles.unrolled = {roles.row};
    PassRoles of_rest = roles;
    roles.row = part.it.indices.size() - 1;
    emit(part, roles);
    if (whole == rows) return;
    part.it = restricted(it, roles.unrolled[0], whole, rows - whole);
    part.it.initializes = false;
    of_rest.row = PassRoles::kNone;
    emit(part, of_rest);
}

// Of an index that is reduced, so many values at a time: what is left over first, as it is short.
void RowPlanner::pass_in_parts(const PlacedStatement& statement, const RowChoice& choice,
                               std::size_t index, std::int64_t part) {
    const std::int64_t extent = statement.it.indices[index].extent;
    const std::int64_t rest = extent % part;
    PlacedStatement next = statement;
    if (rest > 0) {
        next.it = restricted(statement.it, index, extent - rest, rest);
        pass(next, choice);
    }
    next.it = cut(restricted(statement.it, index, 0, extent - rest), index, part);
    next.it.initializes = statement.it.initializes && rest == 0;
    pass_to_scratch(next, choice, next.it.indices.size() - 1);
}

// Into a result that fits, with an element for each value of `parts` and of what the pass does not
// reduce. A statement of its own makes the result of these.
void RowPlanner::pass_to_scratch(const PlacedStatement& statement, const RowChoice& choice,
                                 std::size_t parts) {
    const BoundStatement& it = statement.it;
    const bool sums_along = choice.kind == RowWalk::along_rows;
    const bool is_map = choice.kind == RowWalk::map;
    PlacedStatement next = statement;
    auto order = order_of(it.result, sums_along ? PassRoles::kNone : choice.column);
    for (std::size_t i = 0; i < it.indices.size(); ++i) {
        const bool is_part = i == parts || (sums_along && i != choice.column);
        if (!it.indices[i].reduced || !is_part) continue;
        next.it.indices[i].reduced = false;
        order.insert(sums_along ? order.end() : order.begin(), i);
    }
    const DType dtype = is_map && it.initializes ? it.result.dtype : DType::f32;
    next.it.initializes = true;
    next.it.result = scratch_for(it, order, dtype, next.result);
    pass(next, choice);
    PlacedStatement last{.it = it, .operands = {next.result}, .result = statement.result};
    last.it.operands = {next.it.result};
    last.it.value = read_of(0);
    if (is_map && !it.initializes) {
        last.it.operands.push_back(it.result);
        last.operands.push_back(statement.result);
        last.it.value = call_of(name_of(it.reduction), {read_of(1), read_of(0)});
        last.it.reduction = Reduction::none;
        last.it.initializes = true;
    }
    for (std::size_t i = it.indices.size(); i-- > 0;) {
        if (next.it.result.strides[i] == 0) remove_index(last.it, i);
    }
    plan(std::move(last));
}

void RowPlanner::emit(const PlacedStatement& statement, const PassRoles& roles) {
    PassRoles made_of = roles;
    made_of.leaves_caches = statement.it.leaves_caches && statement.result.of == Memory::Of::result;
    StatementPass made(statement.it, made_of);
    std::string described = made.described();
    steps.push_back({std::move(made), statement.operands, statement.result, std::move(described)});
}

}  // namespace dlprim
