#include "lang/definition.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <map>
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

// The parameters of a statement alone, with equal sizes where the same index goes.
class Parameters {
public:
    explicit Parameters(const Statement& statement) : statement_(statement) {
        for (const RangeClause& range : statement.ranges) said_.insert(range.index);
        for (const Expression& read : statement.exists) {
            for (const Expression& place : read.operands) said_.insert(place.name);
        }
        collect_places(statement.value, false, places_);
    }

    void add_reads(const Expression& tree) {
        if (tree.kind == Expression::Kind::read && tree.name != statement_.result) add(tree);
        for (const Expression& operand : tree.operands) add_reads(operand);
    }

    std::vector<Parameter> take() { return std::move(made_); }

private:
    void add(const Expression& read) {
        const auto same = [&](const Parameter& it) { return it.name == read.name; };
        const auto known = std::find_if(made_.begin(), made_.end(), same);
        if (known != made_.end()) return join(*known, read);
        Parameter parameter{.name = read.name, .position = read.position};
        for (const Expression& place : read.operands) {
            const std::string number = std::to_string(parameter.dimensions.size());
            parameter.dimensions.push_back(
                {.kind = Expression::Kind::name,
                 .name = is_free(read, place) ? read.name + "." + number : size_along(place.name)});
        }
        if (places_.contains(read.name)) parameter.type = "int32";
        made_.push_back(std::move(parameter));
    }

    // Of x(i,j) * x(j,i) both dimensions are one size.
    void join(const Parameter& known, const Expression& read) {
        for (std::size_t i = 0; i < std::min(known.dimensions.size(), read.operands.size()); ++i) {
            const std::string size = known.dimensions[i].name;
            if (is_free(read, read.operands[i]) || size.front() != '.') continue;
            const std::string other = size_along(read.operands[i].name);
            for (Parameter& parameter : made_) {
                for (Expression& it : parameter.dimensions) {
                    if (it.name == other) it.name = size;
                }
            }
            for (auto& [index, it] : sizes_) {
                if (it == other) it = size;
            }
        }
    }

    bool is_free(const Expression& read, const Expression& place) const {
        return place.kind != Expression::Kind::name || read.may_lie_outside ||
               said_.contains(place.name);
    }

    const std::string& size_along(const std::string& index) {
        return sizes_.emplace(index, "." + index).first->second;
    }

    const Statement& statement_;
    std::set<std::string, std::less<>> said_;    // how far these go
    std::set<std::string, std::less<>> places_;  // that are read
    std::map<std::string, std::string, std::less<>> sizes_;
    std::vector<Parameter> made_;
};

void add_mentions(const Expression& tree, int number, MentionsByName& to) {
    if (tree.kind == Expression::Kind::read || tree.kind == Expression::Kind::name) {
        std::vector<int>& all = to[tree.name].all;
        if (all.empty() || all.back() != number) all.push_back(number);
    }
    for (const Expression& it : tree.operands) add_mentions(it, number, to);
}

}  // namespace

MentionsByName mentions_in(const Definition& definition) {
    MentionsByName found;
    for (int i = 0; i < static_cast<int>(definition.statements.size()); ++i) {
        const Statement& it = definition.statements[static_cast<std::size_t>(i)];
        found[it.result].writes.push_back(i);
        found[it.result].all.push_back(i);
        add_mentions(it.value, i, found);
    }
    return found;
}

Definition definition_of(std::string text, Statement only) {
    Parameters parameters(only);
    parameters.add_reads(only.value);
    for (const Expression& read : only.exists) parameters.add_reads(read);
    Definition made{.text = std::move(text), .parameters = parameters.take()};
    made.returns.push_back(only.result);
    made.statements.push_back(std::move(only));
    return made;
}

}  // namespace dlprim
