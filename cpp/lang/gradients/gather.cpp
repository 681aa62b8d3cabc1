#include "lang/gradients/gather.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "lang/gradients/printed.h"
#include "lang/lexer.h"

namespace dlprim {
namespace {

using Kind = Expression::Kind;

bool has(const Expression& tree, const std::string& name) {
    return (tree.kind == Kind::name && tree.name == name) ||
           std::ranges::any_of(tree.operands, [&](const auto& of) { return has(of, name); });
}

class Gather {
public:
    Gather(const Scatter& scatter, const NamedShapes& shapes, Names& names)
        : it_(scatter),
          shapes_(shapes),
          names_(names),
          value_(scatter.value),
          places_(scatter.read, scatter.statement, shapes, names) {}

    std::vector<Gathered> gathered() {
        for (const std::string& remainder : places_.zeros) {
            conditions_.push_back(call_of("==", {named(remainder), number_of(0)}));
        }
        bool stays_inside = true;
        const bool gives_zero = std::ranges::all_of(places_.solved,
                                                    [&](const Solved& it) {
                                                        stays_inside = stays_inside && it.is_inside;
                                                        return it.is_inside || is_masked(it.index);
                                                    }) &&
                                is_product_of_reads(value_);
        if (!gives_zero) ask_inside();
        const bool reads_outside = gives_zero && !stays_inside;
        for (const auto& [target, place] : places_.unsolved) {
            conditions_.push_back(call_of("==", {named(target), placed(place, reads_outside)}));
        }
        value_ = placed(value_, reads_outside);
        repeat_what_is_left_out();
        guard();
        const auto& targets = places_.targets;
        const auto& dimensions = shapes_.tensors.at(it_.read.name);
        for (std::size_t i = 0; i < targets.size(); ++i) {
            places_.extents[targets[i]] = dimensions[i];
        }
        Statement made{.indices = targets, .target = read_of("", targets), .value = value_};
        if (!places_.splits.empty()) return in_order(std::move(made));
        set_reduction(made);
        return {{std::move(made), places_.extents}};
    }

private:
    void set_reduction(Statement& made) const {
        const bool reduces = indices_of(made, shapes_).size() > made.indices.size();
        made.reduction = reduces ? Reduction::sum : Reduction::none;
    }

    // From elements by their remainders to those of the tensor.
    std::vector<Gathered> in_order(Statement last) {
        Statement split{.result = names_.fresh("split_" + it_.read.name), .value = value_};
        split.target = read_of(split.result, places_.targets);
        last.value = split.target;
        for (const SplitPlace& it : places_.splits) {
            split.target.operands[it.place] =
                expression_of({{{it.step, it.quotient}, {1, it.remainder}}, 0});
            last.value.operands[it.place] =
                expression_of(added({{{1, places_.targets[it.place]}}, 0}, scaled(it.shift, -1)));
            const bool may_lie_outside = !it.shift.terms.empty() || it.shift.constant > 0;
            last.value.may_lie_outside = last.value.may_lie_outside || may_lie_outside;
        }
        for (std::size_t i = 0; i < places_.targets.size(); ++i) {
            const auto found = std::ranges::find(places_.splits, i, &SplitPlace::place);
            split.indices.push_back(found == places_.splits.end() ? places_.targets[i]
                                                                  : found->quotient);
            if (found != places_.splits.end()) split.indices.push_back(found->remainder);
        }
        set_reduction(split);
        return {{std::move(split), places_.extents}, {std::move(last), places_.extents}};
    }

    // Whether a factor is zero where the index goes too far, once it is read with zeros outside.
    bool is_masked(const std::string& index) const {
        return std::ranges::any_of(factors_of(value_), [&](const Expression* factor) {
            const auto shape = shapes_.tensors.find(factor->name);
            if (factor->kind != Kind::read || shape == shapes_.tensors.end()) return false;
            for (std::size_t i = 0; i < factor->operands.size(); ++i) {
                const Expression& place = factor->operands[i];
                const bool is_it = place.kind == Kind::name && place.name == index;
                if (is_it && (factor->name == it_.gradient ||
                              are_equal(shape->second[i], places_.extents.at(index)))) {
                    return true;
                }
            }
            return false;
        });
    }

    static std::vector<const Expression*> factors_of(const Expression& product) {
        const bool multiplies = product.name == "*" && product.kind == Kind::call;
        const bool is_negative =
            product.name == "-" && product.kind == Kind::call && product.operands.size() == 1;
        if (!multiplies && !is_negative) return {&product};
        std::vector<const Expression*> made;
        for (const Expression& operand : product.operands) {
            for (const Expression* const it : factors_of(operand)) made.push_back(it);
        }
        return made;
    }

    // So zero times what is read outside is zero: it is no logarithm of zero, for one.
    bool is_product_of_reads(const Expression& value) const {
        return std::ranges::all_of(factors_of(value), [&](const Expression* factor) {
            return factor->kind != Kind::call ||
                   std::ranges::none_of(places_.solved, [&](const Solved& it) {
                       return !it.is_inside && has(*factor, it.index);
                   });
        });
    }

    void ask_inside() {
        for (const Solved& it : places_.solved) {
            if (it.is_inside) continue;
            const Extent& extent = places_.extents.at(it.index);
            if (!extent) {
                refuse_at(it_.text, it_.statement.position, "The gradient by ", it_.read.name,
                          " needs how far ", it.index,
                          " goes, which only the caller says, expected a 'where' clause for it");
            }
            const Expression at = expression_of(it.by);
            if (it.by.terms.size() != 1 || it.by.terms[0].factor < 0 || it.by.constant != 0) {
                conditions_.push_back(call_of(">=", {at, number_of(0)}));
            }
            conditions_.push_back(call_of("<", {at, formula_of(*extent)}));
        }
    }

    void guard() {
        if (conditions_.empty()) return;
        Expression all = conditions_.front();
        for (std::size_t i = 1; i < conditions_.size(); ++i) {
            all = call_of("&&", {std::move(all), conditions_[i]});
        }
        value_ = call_of("?:", {std::move(all), std::move(value_), number_of(0)});
    }

    // With the solved indices replaced.
    Expression placed(const Expression& from, bool reads_outside) const {
        const bool moves = std::ranges::any_of(places_.solved, [&](const Solved& it) {
            return has(from, it.index) && it.by != AffineSum{{{1, it.index}}, 0};
        });
        if (moves && (from.kind == Kind::call || from.kind == Kind::name)) {
            if (const auto sum = affine_of(from, {})) return expression_of(places_.placed(*sum));
        }
        Expression made = from;
        for (Expression& operand : made.operands) operand = placed(operand, reads_outside);
        if (from.kind == Kind::read && reads_outside && !is_inside(from, made)) {
            made.may_lie_outside = true;
        }
        return made;
    }

    // Whether a read stays inside where a solved index does not.
    bool is_inside(const Expression& before, const Expression& after) const {
        const auto shape = shapes_.tensors.find(before.name);
        const auto& dimensions = shapes_.tensors.at(it_.read.name);
        for (std::size_t i = 0; i < before.operands.size(); ++i) {
            const bool may_leave = std::ranges::any_of(places_.solved, [&](const Solved& it) {
                return !it.is_inside && has(before.operands[i], it.index);
            });
            if (!may_leave) continue;
            const auto target = std::ranges::find(places_.targets, after.operands[i].name);
            if (after.operands[i].kind != Kind::name || target == places_.targets.end() ||
                shape == shapes_.tensors.end() ||
                !are_equal(
                    shape->second[i],
                    dimensions[static_cast<std::size_t>(target - places_.targets.begin())])) {
                return false;
            }
        }
        return true;
    }

    // An index that nothing reads any more adds the same as often as it has values.
    void repeat_what_is_left_out() {
        for (const auto& [index, extent] : places_.extents) {
            const auto is_read = [&](const Expression& it) { return has(it, index); };
            if (!places_.is_open(index) || is_read(value_) ||
                std::ranges::any_of(conditions_, is_read)) {
                continue;
            }
            if (!extent) {
                refuse_at(it_.text, it_.statement.position, "The gradient by ", it_.read.name,
                          " needs how far ", index,
                          " goes, which only the caller says, expected a 'where' clause for it");
            }
            if (*extent == AffineSum{{}, 1}) continue;
            value_ = call_of("*", {std::move(value_), formula_of(*extent)});
        }
    }

    const Scatter& it_;
    const NamedShapes& shapes_;
    Names& names_;
    Expression value_;
    SolvedPlaces places_;
    std::vector<Expression> conditions_;
};

}  // namespace

std::vector<Gathered> gathered(const Scatter& scatter, const NamedShapes& shapes, Names& names) {
    return Gather(scatter, shapes, names).gathered();
}

void bound_indices(Statement& statement, const NamedShapes& shapes, const Extents& extents) {
    const auto is_right = [&](const std::string& index) {
        const auto wanted = extents.find(index);
        return wanted == extents.end() || !wanted->second ||
               std::ranges::find(statement.ranges, index, &RangeClause::index) !=
                   statement.ranges.end() ||
               are_equal(extents_of(statement, shapes, true).at(index), wanted->second);
    };
    const auto all = indices_of(statement, shapes);
    // A clause for one bounds others, too.
    for (auto wrong = all.end(); (wrong = std::ranges::find_if_not(all, is_right)) != all.end();) {
        statement.ranges.push_back({.index = *wrong,
                                    .first = number_of(0),
                                    .end = formula_of(*extents.find(*wrong)->second)});
    }
}

}  // namespace dlprim
