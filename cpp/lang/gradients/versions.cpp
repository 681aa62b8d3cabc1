#include "lang/gradients/versions.h"

#include <algorithm>
#include <map>
#include <set>
#include <stdexcept>
#include <utility>

#include "lang/check.h"
#include "lang/gradients/gather.h"
#include "lang/gradients/printed.h"

namespace dlprim {
namespace {

using Kind = Expression::Kind;

bool is_extreme(Reduction reduction) {
    return reduction == Reduction::largest || reduction == Reduction::smallest;
}

class Versions {
public:
    Versions(const Definition& definition, const std::string& parameter)
        : symbols_(checked(definition)) {
        made_.source = definition;
        require_real(parameter);
        take_names();
        name_parameters();
        const auto& statements = made_.source.statements;
        for (const Statement& it : statements) {
            last_[it.result] = std::ranges::count(statements, it.result, &Statement::result);
        }
        declare_results();
        for (const Statement& it : made_.source.statements) add(it);
        for (GivenGradient& given : made_.gradients) given.version = now_.at(given.version);
    }

    VersionedDefinition take() { return std::move(made_); }

private:
    void require_real(const std::string& parameter) const {
        const auto found = symbols_.tensors.find(parameter);
        if (found != symbols_.tensors.end() &&
            (found->second.is_parameter || found->second.is_in_out)) {
            if (found->second.type == ValueType::real) return;
            throw std::invalid_argument("The parameter " + parameter +
                                        " has whole numbers, expected a real one for a gradient.");
        }
        std::string known;
        for (const Parameter& it : made_.source.parameters) {
            known += (known.empty() ? "" : ", ") + it.name;
        }
        throw std::invalid_argument("The definition has no parameter " + parameter +
                                    ", expected one of " + known + ".");
    }

    void take_names() {
        const auto visit = [&](const auto& self, const Expression& tree) -> void {
            made_.names.take(tree.name);
            for (const Expression& operand : tree.operands) self(self, operand);
        };
        for (const auto& [name, tensor] : symbols_.tensors) made_.names.take(name);
        for (const std::string& size : symbols_.sizes) made_.names.take(size);
        for (const Statement& it : made_.source.statements) {
            visit(visit, it.target);
            visit(visit, it.value);
        }
        for (const char* const word : {"def", "where", "in", "exists"}) made_.names.take(word);
    }

    // A formula alone has sizes that no text can name.
    void name_parameters() {
        std::map<std::string, std::string> names;
        for (Parameter& it : made_.source.parameters) {
            if (it.type.empty()) it.type = "float";
            std::vector<Extent> shape;
            for (Expression& size : it.dimensions) {
                if (size.kind == Kind::name && size.name.find('.') != std::string::npos) {
                    std::string& name = names[size.name];
                    std::string wanted = (size.name.front() == '.' ? "size" : "size_") + size.name;
                    std::ranges::replace(wanted, '.', '_');
                    if (name.empty()) name = made_.names.fresh(wanted);
                    size.name = name;
                }
                if (size.kind == Kind::name) made_.shapes.sizes.insert(size.name);
                shape.push_back(sum_of(size));
            }
            made_.shapes.tensors[it.name] = std::move(shape);
        }
    }

    // What is known of the results in front of all statements; where only the caller says how far
    // one goes, a size of its own stands for that.
    void declare_results() {
        NamedShapes shapes = made_.shapes;
        for (const auto& [name, tensor] : symbols_.tensors) {
            if (!tensor.is_parameter) shapes.tensors[name].resize(tensor.rank);
        }
        for (const Statement& it : made_.source.statements) {
            const Extents extents = extents_of(it, shapes, false);
            const std::vector<Extent> shape = shape_of(it, extents);
            for (std::size_t i = 0; i < shape.size(); ++i) {
                Extent& known = shapes.tensors.at(it.result)[i];
                if (!known) known = shape[i];
            }
        }
        for (const std::string& name : made_.source.returns) {
            const Tensor& tensor = symbols_.tensors.at(name);
            std::vector<Extent>& shape = declared_[name] = shapes.tensors.at(name);
            std::vector<Expression> dimensions;
            for (std::size_t i = 0; i < tensor.rank; ++i) {
                dimensions.push_back(dimension_of(name, i, shape[i]));
            }
            if (tensor.is_in_out) {
                made_.shapes.tensors[name] = shape;
                made_.arrays.push_back({.type = "float", .name = name, .dimensions = dimensions});
                now_[name] = name;
            }
            if (tensor.type != ValueType::real) continue;
            made_.gradients.push_back({made_.names.fresh("d_" + name), name, dimensions});
        }
    }

    // As a formula of the parameters' sizes, or by a name of its own.
    Expression dimension_of(const std::string& name, std::size_t i, Extent& extent) {
        if (extent) return formula_of(*extent);
        const std::string size = made_.names.fresh("size_" + name + "_" + std::to_string(i));
        made_.shapes.sizes.insert(size);
        extent = AffineSum{{{1, size}}, 0};
        return named(size);
    }

    void add(const Statement& from) {
        const auto rename = [&](const auto& self, Expression& tree) -> void {
            const auto now = now_.find(tree.name);
            if (tree.kind != Kind::call && now != now_.end()) tree.name = now->second;
            for (Expression& operand : tree.operands) self(self, operand);
        };
        VersionedStatement made{.statement = from};
        Statement& it = made.statement;
        made.is_real = symbols_.tensors.at(from.result).type == ValueType::real;
        rename(rename, it.value);
        for (Expression& read : it.exists) rename(rename, read);
        const Extents extents = extents_of(it, known_shapes(it), false);
        if (now_.contains(from.result)) made.before = now_.at(from.result);
        it.result = last_.at(from.result) > 1 || !made.before.empty()
                        ? made_.names.numbered(from.result)
                        : from.result;
        it.target.name = it.result;
        if (!it.initializes) {
            made.copy = {.result = it.result, .indices = it.indices, .target = it.target};
            made.copy.value = placed_at(it, made.before);
            bound_indices(made.copy, made_.shapes, extents);
        }
        if (is_extreme(it.reduction) && it.value.kind == Kind::call) add_value(made, extents);
        finish(made, extents);
        now_[from.result] = made_.statements.back().statement.result;
    }

    // What is compared with the largest has to be what that was found in, bit for bit.
    void add_value(VersionedStatement& of, const Extents& extents) {
        VersionedStatement made;
        Statement& it = made.statement;
        it.result = made_.names.fresh("of_" + of.statement.result);
        it.indices = indices_of(of.statement, made_.shapes);
        it.target = read_of(it.result, it.indices);
        it.value = std::move(of.statement.value);
        it.ranges = std::move(of.statement.ranges);
        it.exists = std::move(of.statement.exists);
        of.statement.value = it.target;
        of.statement.ranges.clear();
        of.statement.exists.clear();
        finish(made, extents);
    }

    void finish(VersionedStatement& made, const Extents& extents) {
        Statement& it = made.statement;
        made_.shapes.tensors[it.result] = shape_of(it, extents);
        NamedShapes others = made_.shapes;
        others.tensors.erase(it.result);
        bound_indices(it, others, extents);
        made_.statements.push_back(std::move(made));
    }

    // With what is known of the result itself.
    NamedShapes known_shapes(const Statement& it) const {
        NamedShapes made = made_.shapes;
        const auto declared = declared_.find(it.result);
        const auto before = now_.find(it.result);
        if (declared != declared_.end()) {
            made.tensors[it.result] = declared->second;
        } else if (before != now_.end()) {
            made.tensors[it.result] = made.tensors.at(before->second);
        }
        return made;
    }

    Symbols symbols_;
    VersionedDefinition made_;
    std::map<std::string, std::ptrdiff_t> last_;           // how often each is written
    std::map<std::string, std::string, std::less<>> now_;  // the version of each tensor
    std::map<std::string, std::vector<Extent>> declared_;  // of results
};

bool reads(const Expression& tree, const std::string& tensor) {
    return tree.name == tensor ||
           std::ranges::any_of(tree.operands, [&](const auto& of) { return reads(of, tensor); });
}

}  // namespace

std::vector<Parameter> VersionedDefinition::parameters() const {
    std::vector<Parameter> made = source.parameters;
    made.insert(made.end(), arrays.begin(), arrays.end());
    for (const GivenGradient& it : gradients) {
        made.push_back({.type = "float", .name = it.name, .dimensions = it.dimensions});
    }
    return made;
}

VersionedDefinition with_versions(const Definition& definition, const std::string& parameter) {
    return Versions(definition, parameter).take();
}

bool reads(const Statement& statement, const std::string& tensor) {
    return reads(statement.value, tensor) ||
           std::ranges::any_of(statement.exists, [&](const auto& of) { return reads(of, tensor); });
}

std::vector<Statement> needed_for(const std::string& result, const VersionedDefinition& definition,
                                  const std::vector<Statement>& more) {
    std::vector<Statement> all;
    for (const VersionedStatement& it : definition.statements) {
        if (!it.statement.initializes) all.push_back(it.copy);
        all.push_back(it.statement);
    }
    all.insert(all.end(), more.begin(), more.end());
    std::vector<Statement> made;
    for (auto it = all.rbegin(); it != all.rend(); ++it) {
        const bool is_needed =
            it->result == result || std::ranges::any_of(made, [&](const Statement& later) {
                return reads(later, it->result) || later.result == it->result;
            });
        if (is_needed) made.push_back(std::move(*it));
    }
    std::ranges::reverse(made);
    return made;
}

}  // namespace dlprim
