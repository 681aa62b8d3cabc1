#include "lang/definition.h"

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

namespace dlprim {

Definition definition_of(std::string text, Statement only) {
    Definition made{.text = std::move(text)};
    made.statements.push_back(std::move(only));
    const Statement& statement = made.statements.front();
    made.returns.push_back(statement.result);
    std::set<std::string, std::less<>> said;  // how far these go
    for (const RangeClause& range : statement.ranges) said.insert(range.index);
    for (const Expression& read : statement.exists) {
        for (const Expression& place : read.operands) said.insert(place.name);
    }
    const auto visit = [&](const auto& self, const Expression& tree) -> void {
        const auto same = [&](const Parameter& it) { return it.name == tree.name; };
        for (const Expression& operand : tree.operands) self(self, operand);
        if (tree.kind != Expression::Kind::read || tree.name == statement.result ||
            std::any_of(made.parameters.begin(), made.parameters.end(), same)) {
            return;
        }
        Parameter parameter{.name = tree.name, .position = tree.position};
        for (const Expression& place : tree.operands) {
            const bool is_free = place.kind != Expression::Kind::name || tree.may_lie_outside ||
                                 said.contains(place.name);
            const std::string number = std::to_string(parameter.dimensions.size());
            parameter.dimensions.push_back(
                {.kind = Expression::Kind::name,
                 .name = is_free ? tree.name + "." + number : "." + place.name});
        }
        made.parameters.push_back(std::move(parameter));
    };
    visit(visit, statement.value);
    for (const Expression& read : statement.exists) visit(visit, read);
    return made;
}

}  // namespace dlprim
