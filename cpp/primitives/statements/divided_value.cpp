#include "primitives/statements/divided_value.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace dlprim {
namespace {

void renumber(Expression& value, const std::set<std::size_t>& kept) {
    if (value.kind == Expression::Kind::read) {
        const auto found = kept.find(static_cast<std::size_t>(value.number));
        value.number = static_cast<double>(std::distance(kept.begin(), found));
    }
    for (Expression& operand : value.operands) renumber(operand, kept);
}

}  // namespace

std::set<std::size_t> operands_read(const Expression& value) {
    if (value.kind == Expression::Kind::read) return {static_cast<std::size_t>(value.number)};
    std::set<std::size_t> all;
    for (const Expression& operand : value.operands) all.merge(operands_read(operand));
    return all;
}

Expression& operand_that_reads_most(Expression& value) {
    return *std::ranges::max_element(value.operands, {},
                                     [](const Expression& it) { return operands_read(it).size(); });
}

void keep_operands_read(PlacedStatement& statement) {
    const std::set<std::size_t> kept = operands_read(statement.it.value);
    std::vector<BoundOperand> operands;
    std::vector<RowStatement::Memory> memories;
    for (const std::size_t it : kept) {
        operands.push_back(std::move(statement.it.operands[it]));
        memories.push_back(statement.operands[it]);
    }
    statement.it.operands = std::move(operands);
    statement.operands = std::move(memories);
    renumber(statement.it.value, kept);
}

}  // namespace dlprim
