// Statements behind each other that become one program of the row engine. What nothing but these
// reads is then in no array.
#pragma once

#include <functional>
#include <vector>

#include "primitives/formulas/decisions.h"
#include "primitives/formulas/statement_binding.h"
#include "primitives/formulas/step_group.h"

namespace dlprim {

// Whether the result of a statement is read by others than those from `first` to `last`.
using IsUsed = std::function<bool(const StatementBinding& binding, int first, int last)>;

// The same statements, those that go on with the program of one in front inside that one's binding:
// as many as fit, unless it was decided otherwise.
std::vector<StatementBinding> with_rows_fused(const std::vector<StatementBinding>& bindings,
                                              const IsUsed& is_used, Decisions& decisions);

// Numbers of those whose result is stored nowhere.
std::vector<int> unstored_statements(const std::vector<StatementBinding>& bindings);

// Of one with such statements.
Step fused_step(const StatementBinding& binding);

}  // namespace dlprim
