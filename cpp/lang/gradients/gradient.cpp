#include "lang/gradients/gradient.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "lang/check.h"
#include "lang/gradients/derivative.h"
#include "lang/gradients/gather.h"
#include "lang/gradients/printed.h"
#include "lang/gradients/versions.h"
#include "lang/parser.h"

namespace dlprim {
namespace {

using Kind = Expression::Kind;

Expression zero_or(const Expression& condition, Expression value) {
    return call_of("?:", {condition, std::move(value), number_of(0)});
}

// The gradient of a tensor while it is added up: until a second part comes it may be another's.
struct Sum {
    std::string name = {};
    bool is_other = false;
};

class Gradient {
public:
    Gradient(const Definition& definition, const std::string& parameter)
        : it_(with_versions(definition, parameter)), parameter_(parameter) {
        result_ = it_.names.fresh("d_" + parameter);
        for (const GivenGradient& given : it_.gradients) {
            it_.shapes.tensors[given.name] = it_.shapes.tensors.at(given.version);
            sums_[given.version] = {given.name, true};
        }
    }

    Definition definition() {
        std::set<std::string> varying = {parameter_};
        for (const VersionedStatement& it : it_.statements) {
            const bool varies = std::ranges::any_of(
                varying, [&](const std::string& name) { return reads(it.statement, name); });
            const bool continues = !it.statement.initializes && varying.contains(it.before);
            if ((varies || continues) && it.is_real) varying.insert(it.statement.result);
        }
        varying_ = std::move(varying);
        for (auto it = it_.statements.rbegin(); it != it_.statements.rend(); ++it) {
            const std::string& name = it->statement.result;
            if (varying_.contains(name) && sums_.contains(name)) add_shares_of(*it);
        }
        finish();
        const std::string& name = it_.source.name;
        const Definition made{.name = (name.empty() ? "" : name + "_") + result_,
                              .parameters = it_.parameters(),
                              .returns = {result_},
                              .statements = needed_for(result_, it_, statements_)};
        return parse_definitions(text_of(made)).front();
    }

private:
    std::string gradient_name(const std::string& tensor) {
        return tensor == parameter_ ? result_ : it_.names.fresh("d_" + tensor);
    }

    void add_shares_of(const VersionedStatement& it) {
        const Statement& of = it.statement;
        Expression share = placed_at(of, sums_.at(of.result).name);
        if (of.reduction == Reduction::largest || of.reduction == Reduction::smallest) {
            share = add_to_chosen(it, share);
        } else if (of.reduction == Reduction::product) {
            share = add_to_factors(it, share);
        } else if (!of.initializes) {
            add_before(it, share);
        }
        const auto is_sought = [&](const Expression& name) { return varying_.contains(name.name); };
        for (const GradientShare& found :
             gradient_shares(of.value, share, is_sought, it_.source.text)) {
            add(of, found.read, with_result(found.value, of));
        }
    }

    // Split evenly among those that are equal: with no index to tell the first one, any number of
    // reduced indices are one case.
    Expression add_to_chosen(const VersionedStatement& it, const Expression& gradient) {
        const Statement& of = it.statement;
        const Expression result = placed_at(of, of.result);
        const Expression is_chosen = call_of("==", {of.value, result});
        Statement count = like(of, "count_" + of.result);
        count.reduction = Reduction::sum;
        count.value = zero_or(is_chosen, number_of(1));
        const Expression part = call_of("/", {gradient, placed_at(of, count.result)});
        if (!of.initializes) {
            const Expression before = placed_at(of, it.before);
            const Expression is_before = call_of("==", {before, result});
            Statement first = count;
            first.reduction = Reduction::none;
            first.value = zero_or(is_before, number_of(1));
            first.initializes = true;
            write(std::move(first));
            write(std::move(count));
            add_before(it, zero_or(is_before, part));
        } else {
            write(std::move(count));
        }
        return zero_or(is_chosen, part);
    }

    // Times the product of all others, which is right of zeros, too.
    Expression add_to_factors(const VersionedStatement& it, Expression gradient) {
        const Statement& of = it.statement;
        if (!of.initializes) {
            const Expression before = placed_at(of, it.before);
            Statement product = like(of, "product_" + of.result);
            product.value = of.value;
            product.reduction = Reduction::product;
            product.initializes = true;
            const Expression others = placed_at(of, product.result);
            if (varying_.contains(it.before)) write(std::move(product));
            add_before(it, call_of("*", {gradient, others}));
            gradient = call_of("*", {std::move(gradient), before});
        }
        const auto indices = indices_of(of, it_.shapes);
        if (indices.size() == of.indices.size()) return gradient;
        const Extents extents = extents_of(of, it_.shapes, false);
        Statement others = like(of, "others_" + of.result);
        others.initializes = true;
        others.reduction = Reduction::product;
        others.indices = indices;
        others.target = read_of(others.result, indices);
        others.value = of.value;
        Extents wanted = extents;
        Expression is_this;
        for (std::size_t i = of.indices.size(); i < indices.size(); ++i) {
            const std::string other = it_.names.fresh(indices[i]);
            replace(others.value, indices[i], other);
            wanted[other] = extents.at(indices[i]);
            const Expression same = call_of("==", {named(indices[i]), named(other)});
            is_this = i == of.indices.size() ? same : call_of("&&", {std::move(is_this), same});
        }
        others.value = call_of("?:", {is_this, number_of(1), std::move(others.value)});
        others.ranges.clear();
        bound_indices(others, it_.shapes, wanted);
        const Expression factor = read_of(others.result, indices);
        for (const std::string& index : indices) {
            it_.shapes.tensors[others.result].push_back(extents.at(index));
        }
        statements_.push_back(std::move(others));
        return call_of("*", {std::move(gradient), factor});
    }

    static void replace(Expression& tree, const std::string& index, const std::string& by) {
        if (tree.kind == Kind::name && tree.name == index) tree.name = by;
        for (Expression& operand : tree.operands) replace(operand, index, by);
    }

    // Over the indices of a statement, with a result of the same shape.
    Statement like(const Statement& of, const std::string& name) {
        Statement made = of;
        made.result = it_.names.fresh(name);
        made.target.name = made.result;
        return made;
    }

    void write(Statement statement) {
        const Extents extents = extents_of(statement, it_.shapes, false);
        it_.shapes.tensors[statement.result] = shape_of(statement, extents);
        statements_.push_back(std::move(statement));
    }

    // A function that the statement computed is read, not computed again.
    static Expression with_result(Expression value, const Statement& of) {
        const bool is_function = of.reduction == Reduction::none && of.value.kind == Kind::call &&
                                 tightness(of.value.name) == 0 && of.value.name != "?:" &&
                                 of.value.operands.size() == 1 && of.value.name != "-";
        if (!is_function) return value;
        const std::string text = text_of(of.value);
        const auto visit = [&](const auto& self, Expression& tree) -> void {
            if (tree.kind == Kind::call && text_of(tree) == text) {
                tree = placed_at(of, of.result);
            }
            for (Expression& operand : tree.operands) self(self, operand);
        };
        visit(visit, value);
        return value;
    }

    void add(const Statement& of, const Expression& read, const Expression& value) {
        if (!varying_.contains(read.name)) return;
        const std::string& gradient = sums_.at(of.result).name;
        auto parts = gathered({read, value, of, gradient, it_.source.text}, it_.shapes, it_.names);
        if (parts.size() > 1) {
            auto& [first, extents] = parts.front();
            bound_indices(first, it_.shapes, extents);
            it_.shapes.tensors[first.result] = shape_of(first, extents);
            statements_.push_back(std::move(first));
        }
        auto& [part, extents] = parts.back();
        const auto known = sums_.find(read.name);
        if (known != sums_.end()) {
            own(read.name, known->second, part);
            part.initializes = false;
            part.reduction = Reduction::sum;
        } else if (is_whole(part, of, gradient) && read.name != parameter_) {
            sums_[read.name] = {gradient, true};
            return;
        } else {
            sums_[read.name] = {gradient_name(read.name)};
        }
        part.result = part.target.name = sums_.at(read.name).name;
        bound_indices(part, it_.shapes, extents);
        it_.shapes.tensors[part.result] = it_.shapes.tensors.at(read.name);
        statements_.push_back(std::move(part));
    }

    // Whether it is nothing but the gradient of the statement's result.
    static bool is_whole(const Statement& part, const Statement& of, const std::string& gradient) {
        const std::string whole = text_of(placed_at(of, gradient));
        return text_of(placed_at(part, gradient)) == whole && text_of(part.value) == whole;
    }

    // On what stood in the result before, which no reduced index repeats.
    void add_before(const VersionedStatement& it, const Expression& value) {
        Statement of = it.statement;
        of.value = placed_at(of, it.before);
        of.ranges.clear();
        of.exists.clear();
        add(of, of.value, value);
    }

    // Copied, if what stands in it until now is another's.
    void own(const std::string& tensor, Sum& sum, const Statement& like) {
        if (!sum.is_other) return;
        const std::string name = gradient_name(tensor);
        Statement copy{.result = name, .indices = like.indices};
        copy.target = read_of(name, like.indices);
        copy.value = read_of(sum.name, like.indices);
        it_.shapes.tensors[name] = it_.shapes.tensors.at(tensor);
        statements_.push_back(std::move(copy));
        sum = {name};
    }

    // The result is there whatever was added to it.
    void finish() {
        const auto& shape = it_.shapes.tensors.at(parameter_);
        const auto known = sums_.find(parameter_);
        if (known != sums_.end() && !known->second.is_other) return;
        Statement last{.result = result_};
        for (std::size_t i = 0; i < shape.size(); ++i) {
            last.indices.push_back(it_.names.fresh("at"));
        }
        last.target = read_of(result_, last.indices);
        last.value =
            known == sums_.end() ? number_of(0) : read_of(known->second.name, last.indices);
        Extents wanted;
        for (std::size_t i = 0; i < shape.size(); ++i) wanted[last.indices[i]] = shape[i];
        bound_indices(last, it_.shapes, wanted);
        statements_.push_back(std::move(last));
    }

    VersionedDefinition it_;
    std::string parameter_;
    std::string result_;
    std::set<std::string> varying_;
    std::map<std::string, Sum, std::less<>> sums_;
    std::vector<Statement> statements_;
};

}  // namespace

Definition gradient_of(const Definition& definition, std::string_view parameter) {
    return Gradient(definition, std::string(parameter)).definition();
}

}  // namespace dlprim
