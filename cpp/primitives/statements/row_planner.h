// How a statement becomes steps of the row engine. Every step but the last ones is there because
// of what the engine is not: it has no distance along columns, no single values but of float32, and
// few operands.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

#include "primitives/statements/row_choice.h"
#include "primitives/statements/row_statement.h"

namespace dlprim {

// A statement and what its operands are elements of.
struct PlacedStatement {
    BoundStatement it = {};
    std::vector<RowStatement::Memory> operands = {};
    RowStatement::Memory result = {};
};

class RowPlanner {
public:
    void plan(PlacedStatement statement);

    std::vector<RowStatement::Step> steps = {};
    std::int64_t scratch_bytes = 0;

private:
    void copy(const PlacedStatement& statement);
    void copy_operands(PlacedStatement& statement, std::size_t column);
    void divide(PlacedStatement& statement);
    std::set<std::size_t> divide(PlacedStatement& statement, Expression& value, std::size_t most);
    Expression temporary(PlacedStatement& statement, Expression value);
    void pass(const PlacedStatement& statement, const RowChoice& choice);
    void pass_in_turns(const PlacedStatement& statement, PassRoles roles);
    void pass_in_parts(const PlacedStatement& statement, const RowChoice& choice, std::size_t index,
                       std::int64_t part);
    void pass_to_scratch(const PlacedStatement& statement, const RowChoice& choice,
                         std::size_t parts = PassRoles::kNone);
    void emit(const PlacedStatement& statement, const PassRoles& roles);
    BoundOperand plan_to_scratch(PlacedStatement statement, const std::vector<std::size_t>& order,
                                 DType dtype, RowStatement::Memory& memory);
    BoundOperand scratch_for(const BoundStatement& it, const std::vector<std::size_t>& order,
                             DType dtype, RowStatement::Memory& memory);
};

}  // namespace dlprim
