#include "lang/definition.h"

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

namespace dlprim {
namespace {

void collect_places(const Expression& tree, bool in_place,
                    std::set<std::string, std::less<>>& places) {
    const bool is_read = tree.kind == Expression::Kind::read;
    if (is_read && in_place) places.insert(tree.name);
    for (const Expression& it : tree.operands) collect_places(it, in_place || is_read, places);
}

}  // namespace

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
    std::set<std::string, std::less<>> places;  // that are read
    collect_places(statement.value, false, places);
    const auto add = [&](const Expression& read) {
        const auto same = [&](const Parameter& it) { return it.name == read.name; };
        if (read.name == statement.result ||
            std::any_of(made.parameters.begin(), made.parameters.end(), same)) {
            return;
        }
        Parameter parameter{.name = read.name, .position = read.position};
        for (const Expression& place : read.operands) {
            const bool is_free = place.kind != Expression::Kind::name || read.may_lie_outside ||
                                 said.contains(place.name);
            const std::string number = std::to_string(parameter.dimensions.size());
            parameter.dimensions.push_back(
                {.kind = Expression::Kind::name,
                 .name = is_free ? read.name + "." + number : "." + place.name});
        }
        if (places.contains(read.name)) parameter.type = "int32";
        made.parameters.push_back(std::move(parameter));
    };
    const auto visit = [&](const auto& self, const Expression& tree) -> void {
        if (tree.kind == Expression::Kind::read) add(tree);
        for (const Expression& operand : tree.operands) self(self, operand);
    };
    visit(visit, statement.value);
    for (const Expression& read : statement.exists) visit(visit, read);
    return made;
}

}  // namespace dlprim
