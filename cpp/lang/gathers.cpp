#include "lang/gathers.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
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
    Lifting(const Definition& definition, const Symbols& symbols)
        : made_(definition), symbols_(symbols) {
        made_.statements.clear();
    }

    void add(Statement statement, const std::vector<IndexRange>& ranges) {
        ranges_ = &ranges;
        read_scalars(statement.value, false);
        if (!is_whole(statement)) statement.value = lifted(std::move(statement.value));
        made_.statements.push_back(std::move(statement));
    }

    Definition take() { return std::move(made_); }

private:
    void read_scalars(Expression& tree, bool in_place) const {
        if (in_place && tree.kind == Kind::name && symbols_.tensors.contains(tree.name)) {
            tree.kind = Kind::read;
        }
        for (Expression& operand : tree.operands) {
            read_scalars(operand, in_place || tree.kind == Kind::read);
        }
    }

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

    static Expression number(std::int64_t value) {
        return {.number = static_cast<double>(value), .is_integer = true};
    }

    Expression temporary(const Expression& read) {
        Statement copy{.result = read.name + "'" + std::to_string(++count_),
                       .value = read,
                       .position = read.position};
        for (const Expression& place : read.operands) add_indices(place, copy.indices);
        for (const IndexRange& range : *ranges_) {
            const auto& has = copy.indices;
            // A statement without elements reads nothing.
            copy.value.may_lie_outside = copy.value.may_lie_outside || range.extent == 0;
            if (std::find(has.begin(), has.end(), range.name) == has.end()) continue;
            copy.ranges.push_back({.index = range.name,
                                   .first = number(0),
                                   .end = number(range.extent),
                                   .position = read.position});
        }
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
        if (place.kind == Kind::name && is_new && symbols_.is_index(place.name)) {
            indices.push_back(place.name);
        }
        for (const Expression& operand : place.operands) add_indices(operand, indices);
    }

    Definition made_;
    const Symbols& symbols_;
    const std::vector<IndexRange>* ranges_ = nullptr;
    int count_ = 0;
};

}  // namespace

bool gathers(const Expression& read) {
    return read.kind == Kind::read &&
           std::any_of(read.operands.begin(), read.operands.end(), has_read);
}

Definition with_gathers_apart(const Definition& definition, const Symbols& symbols,
                              const Ranges& ranges) {
    Lifting lifting(definition, symbols);
    for (std::size_t i = 0; i < definition.statements.size(); ++i) {
        lifting.add(definition.statements[i], ranges.statements[i]);
    }
    return lifting.take();
}

}  // namespace dlprim
