#include "lang/gathers.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "lang/lexer.h"

namespace dlprim {
namespace {

using Kind = Expression::Kind;

bool has_read(const Expression& tree) {
    return tree.kind == Kind::read ||
           std::any_of(tree.operands.begin(), tree.operands.end(), has_read);
}

class Lifting {
public:
    explicit Lifting(const Definition& definition) : made_(definition) { made_.statements.clear(); }

    void add(Statement statement) {
        ranges_ = &statement.ranges;
        if (!is_whole(statement)) statement.value = lifted(std::move(statement.value));
        made_.statements.push_back(std::move(statement));
    }

    Definition take() { return std::move(made_); }

private:
    Expression lifted(Expression value) {
        if (value.kind == Kind::read) return gathers(value) ? temporary(value) : value;
        for (Expression& operand : value.operands) operand = lifted(std::move(operand));
        return value;
    }

    // A copy, or a sum over indices that stand in places that are read alone.
    bool is_whole(const Statement& statement) const {
        if (!gathers(statement.value)) return false;
        if (statement.reduction == Reduction::none) return true;
        if (statement.reduction != Reduction::sum || !statement.initializes) return false;
        std::vector<std::string> elsewhere;
        for (const Expression& place : statement.value.operands) {
            if (place.kind != Kind::read) add_indices(place, elsewhere);
        }
        return std::all_of(elsewhere.begin(), elsewhere.end(), [&](const std::string& index) {
            return std::find(statement.indices.begin(), statement.indices.end(), index) !=
                   statement.indices.end();
        });
    }

    Expression temporary(const Expression& read) {
        Statement copy{.result = read.name + "'" + std::to_string(++count_),
                       .value = read,
                       .ranges = *ranges_,
                       .position = read.position};
        for (const Expression& place : read.operands) add_indices(place, copy.indices);
        copy.target = {.kind = Kind::read, .name = copy.result, .position = read.position};
        for (const std::string& index : copy.indices) {
            copy.target.operands.push_back(
                {.kind = Kind::name, .name = index, .position = read.position});
        }
        made_.statements.push_back(copy);
        return copy.target;
    }

    void add_indices(const Expression& place, std::vector<std::string>& indices) const {
        if (place.kind == Kind::read && gathers(place)) {
            refuse_at(made_.text, place.position, "A place is read from ", place.name,
                      " at a place that is read itself, expected a tensor in between");
        }
        const bool is_new = std::find(indices.begin(), indices.end(), place.name) == indices.end();
        if (place.kind == Kind::name && is_new && !is_size(place.name)) {
            indices.push_back(place.name);
        }
        for (const Expression& operand : place.operands) add_indices(operand, indices);
    }

    bool is_size(const std::string& name) const {
        return std::any_of(
            made_.parameters.begin(), made_.parameters.end(), [&](const Parameter& it) {
                const auto is_it = [&](const Expression& size) {
                    return size.kind == Kind::name && size.name == name;
                };
                return it.name == name ||
                       std::any_of(it.dimensions.begin(), it.dimensions.end(), is_it);
            });
    }

    Definition made_;
    const std::vector<RangeClause>* ranges_ = nullptr;
    int count_ = 0;
};

}  // namespace

bool gathers(const Expression& read) {
    return read.kind == Kind::read &&
           std::any_of(read.operands.begin(), read.operands.end(), has_read);
}

Definition with_gathers_apart(const Definition& definition) {
    Lifting lifting(definition);
    for (const Statement& statement : definition.statements) lifting.add(statement);
    return lifting.take();
}

}  // namespace dlprim
