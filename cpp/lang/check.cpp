#include "lang/check.h"

#include <algorithm>
#include <cstdint>

#include "lang/affine.h"
#include "lang/lexer.h"
#include "lang/parser.h"
#include "lang/stack.h"

namespace dlprim {
namespace {

using Kind = Expression::Kind;
using Rule = Function::Rule;

std::string counted(std::size_t count, const std::string& what) {
    return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

// Nothing if it holds; else which kind of value was expected.
void require_type(ValueType found, bool truth, const Expression& it, const std::string& text) {
    if ((found == ValueType::truth) == truth) return;
    refuse_at(text, it.position,
              truth ? "A number stands where a condition was expected (x > 0)"
                    : "A condition stands where a number was expected (x > 0 ? 1 : 0)");
}

ValueType type_of_call(const Expression& call, const Symbols& symbols, const std::string& text) {
    const Function* const function = find_function(call.name);
    const std::size_t count = call.operands.size();
    if (count != function->operands && !(call.name == "-" && count == 1)) {
        refuse_at(text, call.position, "The function ", call.name, " has ",
                  counted(count, "operand"), ", expected ", function->operands);
    }
    std::vector<ValueType> types;
    for (const Expression& operand : call.operands) {
        types.push_back(type_of(operand, symbols, text));
    }
    if (function->rule == Rule::cast) return type_named(call.name);
    if (function->rule == Rule::selects) {
        require_type(types[0], true, call.operands[0], text);
        require_type(types[2], types[1] == ValueType::truth, call.operands[2], text);
        return std::max(types[1], types[2]);
    }
    for (std::size_t i = 0; i < count; ++i) {
        require_type(types[i], function->rule == Rule::logic, call.operands[i], text);
    }
    if (function->rule == Rule::real) return ValueType::real;
    if (function->rule != Rule::promotes) return ValueType::truth;
    return *std::max_element(types.begin(), types.end());
}

ValueType type_of_read(const Expression& read, const Symbols& symbols, const std::string& text) {
    const auto tensor = symbols.tensors.find(read.name);
    if (tensor == symbols.tensors.end()) {
        const std::string_view here = spelling_of(read.name);
        refuse_at(text, read.position, "The name ", read.name,
                  " is no tensor and no function, expected ", here.empty() ? "one of them" : here);
    }
    if (tensor->second.rank != read.operands.size()) {
        refuse_at(text, read.position, "The tensor ", read.name, " has ",
                  counted(tensor->second.rank, "dimension"), ", expected as many places and not ",
                  read.operands.size());
    }
    for (const Expression& place : read.operands) {
        if (type_of(place, symbols, text) == ValueType::integer) continue;
        refuse_at(text, place.position, "A place of ", read.name,
                  " is no integer, expected sums of indices or a tensor of integers");
    }
    return tensor->second.type;
}

template <typename Visit>
void for_each_name(const Expression& tree, const Visit& visit) {
    if (tree.kind == Kind::name || tree.kind == Kind::read) visit(tree);
    for (const Expression& operand : tree.operands) for_each_name(operand, visit);
}

class Checker {
public:
    explicit Checker(const Definition& definition) : it_(definition) {}

    Symbols symbols() {
        parameters();
        for (const Statement& statement : it_.statements) declare(statement);
        // Integers become real numbers where a later statement writes these to the same result.
        for (bool changes = true; changes;) {
            changes = false;
            written_.clear();
            for (const Statement& statement : it_.statements) changes |= changes_type(statement);
        }
        for (const std::string& name : it_.returns) {
            if (!written_.contains(name)) {
                refuse(it_.statements.empty() ? 0 : it_.statements.back().position, "The result ",
                       name, " is never written");
            }
            if (std::count(it_.returns.begin(), it_.returns.end(), name) > 1) {
                refuse(0, "The result ", name, " is returned twice");
            }
        }
        return std::move(symbols_);
    }

private:
    template <typename... Parts>
    [[noreturn]] void refuse(std::int64_t position, const Parts&... parts) const {
        refuse_at(it_.text, position, parts...);
    }

    void require_no_function(const std::string& name, std::int64_t position) const {
        if (find_function(name) == nullptr) return;
        refuse(position, "The name ", name, " is a function's, expected another one");
    }

    void parameters() {
        for (const Parameter& parameter : it_.parameters) {
            require_no_function(parameter.name, parameter.position);
            const Tensor tensor{parameter.dimensions.size(), type_named(parameter.type), true};
            if (!symbols_.tensors.emplace(parameter.name, tensor).second) {
                refuse(parameter.position, "The name ", parameter.name, " is defined twice");
            }
        }
        for (const Parameter& parameter : it_.parameters) {
            for (const Expression& size : parameter.dimensions) {
                if (size.kind == Kind::number || size.kind == Kind::call) continue;
                if (size.kind != Kind::name || symbols_.tensors.contains(size.name)) {
                    refuse(size.position, "The tensor ", size.name,
                           " stands where a size was expected");
                }
                require_no_function(size.name, size.position);
                symbols_.sizes.insert(size.name);
            }
        }
        for (const Parameter& parameter : it_.parameters) {
            for (const Expression& size : parameter.dimensions) {
                if (size.kind == Kind::call) formula(size, parameter.name);
            }
        }
    }

    void formula(const Expression& size, const std::string& tensor) const {
        for_each_name(size, [&](const Expression& it) {
            if (it.kind == Kind::name && symbols_.sizes.contains(it.name)) return;
            refuse(it.position, "The name ", it.name, " stands in a dimension of ", tensor,
                   ", expected numbers and sizes that are dimensions themselves");
        });
        if (type_of(size, symbols_, it_.text) == ValueType::integer) return;
        refuse(size.position, "A dimension of ", tensor, " is no integer, expected one");
    }

    // Before anything is read: a name is a tensor in all of the definition.
    void declare(const Statement& statement) {
        const std::string& name = statement.result;
        require_no_function(name, statement.position);
        if (symbols_.sizes.contains(name)) {
            refuse(statement.position, "The name ", name, " is a size's, expected another one");
        }
        const std::size_t rank = statement.target.operands.size();
        const Tensor& tensor = symbols_.tensors.emplace(name, Tensor{rank}).first->second;
        if (tensor.is_parameter) {
            refuse(statement.position, "The parameter ", name,
                   " is written, expected another name: arguments are left as they are");
        }
        if (tensor.rank != rank) {
            refuse(statement.position, "The result ", name, " had ",
                   counted(tensor.rank, "dimension"), " before, expected as many indices and not ",
                   rank);
        }
    }

    void require_bare_indices(const Statement& statement) const {
        if (statement.target.may_lie_outside) {
            refuse(statement.position, "The result has a '?', expected one on the right only");
        }
        std::set<std::string> known;
        for (const Expression& place : statement.target.operands) {
            const auto sum = affine_of(place, {});
            bool is_own = sum && sum->constant == 0 &&
                          std::ranges::find(sum->terms, 1, &AffineTerm::factor) != sum->terms.end();
            for_each_name(place, [&](const Expression& it) {
                is_own = is_own && it.kind == Kind::name && symbols_.is_index(it.name) &&
                         known.insert(it.name).second;
            });
            if (is_own) continue;
            refuse(place.position, "A place of the result ", statement.result,
                   " is no index of its own, expected another name at every place");
        }
    }

    // Returns whether its result turned out to be of another type than was thought.
    bool changes_type(const Statement& statement) {
        require_bare_indices(statement);
        const std::vector<std::string> indices = indices_of(statement, symbols_);
        const bool reduces = indices.size() > statement.indices.size();
        if (!statement.initializes) require_there(statement.result, statement.position);
        const auto visit = [&](const Expression& it) { use(it, statement, reduces); };
        for_each_name(statement.value, visit);
        if (reduces && statement.reduction == Reduction::none) {
            refuse(statement.position, "The index ", indices[statement.indices.size()],
                   " stands on the right only, expected '+=!' or another reduction instead of '='");
        }
        for (const Expression& read : statement.exists) exists(read, statement, visit);
        for (const RangeClause& range : statement.ranges) bounds(range, statement);
        return writes(statement, type_of(statement.value, symbols_, it_.text));
    }

    bool writes(const Statement& statement, ValueType type) {
        Tensor& tensor = symbols_.tensors.at(statement.result);
        if (statement.reduction != Reduction::none) {
            require_type(type, false, statement.value, it_.text);
        }
        if (written_.insert(statement.result).second && typed_.insert(statement.result).second &&
            !tensor.is_in_out) {
            tensor.type = type;
        }
        require_type(type, tensor.type == ValueType::truth, statement.value, it_.text);
        const bool changes = type > tensor.type;
        tensor.type = std::max(type, tensor.type);
        return changes;
    }

    void use(const Expression& it, const Statement& statement, bool reduces) {
        require_no_function(it.name, it.position);
        if (!symbols_.tensors.contains(it.name)) return;
        require_there(it.name, it.position);
        if (it.name != statement.result) return;
        const auto& places = statement.target.operands;
        bool same = !reduces && it.operands.size() == places.size();
        for (std::size_t i = 0; same && i < it.operands.size(); ++i) {
            same = it.operands[i].kind == Kind::name && places[i].kind == Kind::name &&
                   it.operands[i].name == places[i].name;
        }
        if (!same) {
            refuse(it.position, "The result ", it.name,
                   " is read while it is written, expected its own indices and no reduction, or "
                   "another name");
        }
    }

    void require_there(const std::string& name, std::int64_t position) {
        Tensor& tensor = symbols_.tensors.at(name);
        if (tensor.is_parameter || written_.contains(name)) return;
        if (std::find(it_.returns.begin(), it_.returns.end(), name) == it_.returns.end()) {
            refuse(position, "The tensor ", name,
                   " is read or added to before it is written, expected a statement for it in "
                   "front, or '+=!'");
        }
        tensor.is_in_out = true;
    }

    // What only gives a range has the statement's own indices.
    void require_own_indices(const Expression& tree, const Statement& statement) const {
        const std::vector<std::string> own = indices_of(statement, symbols_);
        for_each_name(tree, [&](const Expression& it) {
            if (it.kind != Kind::name || !symbols_.is_index(it.name) ||
                std::find(own.begin(), own.end(), it.name) != own.end()) {
                return;
            }
            refuse(it.position, "The index ", it.name,
                   " has a range only, expected it on a side of the statement, too");
        });
    }

    template <typename Visit>
    void exists(const Expression& read, const Statement& statement, const Visit& visit) const {
        if (read.kind != Kind::read) {
            refuse(read.position, "There is no read behind 'exists', expected one such as x(i)");
        }
        for_each_name(read, visit);
        require_own_indices(read, statement);
        type_of(read, symbols_, it_.text);
    }

    void bounds(const RangeClause& range, const Statement& statement) const {
        const Expression index{.kind = Kind::name, .name = range.index, .position = range.position};
        if (!symbols_.is_index(range.index)) {
            refuse(range.position, "The name ", range.index, " is no index, expected one");
        }
        require_own_indices(index, statement);
        const auto same = [&](const RangeClause& it) { return it.index == range.index; };
        if (std::count_if(statement.ranges.begin(), statement.ranges.end(), same) > 1) {
            refuse(range.position, "The index ", range.index, " has two ranges, expected one");
        }
        for (const Expression* const bound : {&range.first, &range.end}) {
            for_each_name(*bound, [&](const Expression& it) {
                if (symbols_.sizes.contains(it.name)) return;
                refuse(it.position, "The name ", it.name, " stands in the range of ", range.index,
                       ", expected numbers and sizes");
            });
            if (type_of(*bound, symbols_, it_.text) != ValueType::integer) {
                refuse(bound->position, "The range of ", range.index,
                       " has a bound that is no integer, expected one");
            }
        }
    }

    const Definition& it_;
    Symbols symbols_;
    std::set<std::string, std::less<>> written_;  // in front of the statement that is looked at
    std::set<std::string, std::less<>> typed_;
};

}  // namespace

Symbols checked(const Definition& definition) {
    for (const Statement& it : definition.statements) {
        require_stack(definition.text, it);
    }
    return Checker(definition).symbols();
}

std::vector<Definition> checked_definitions(std::string_view text) {
    std::vector<Definition> found = parse_definitions(text);
    for (const Definition& it : found) checked(it);
    return found;
}

Definition checked_contraction(std::string_view text) {
    Definition made = parse_contraction(text);
    checked(made);
    return made;
}

std::vector<std::string> indices_of(const Statement& statement, const Symbols& symbols) {
    std::vector<std::string> made = statement.indices;
    for_each_name(statement.value, [&](const Expression& it) {
        if (it.kind == Kind::name && symbols.is_index(it.name) &&
            std::find(made.begin(), made.end(), it.name) == made.end()) {
            made.push_back(it.name);
        }
    });
    return made;
}

ValueType type_of(const Expression& expression, const Symbols& symbols, const std::string& text) {
    switch (expression.kind) {
        case Kind::number: return expression.is_integer ? ValueType::integer : ValueType::real;
        case Kind::call: return type_of_call(expression, symbols, text);
        case Kind::name:
            if (!symbols.tensors.contains(expression.name)) return ValueType::integer;
            [[fallthrough]];
        case Kind::read: return type_of_read(expression, symbols, text);
    }
    return ValueType::real;
}

}  // namespace dlprim
