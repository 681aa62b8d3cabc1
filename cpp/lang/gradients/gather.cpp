#include "lang/gradients/gather.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "lang/functions.h"
#include "lang/gradients/printed.h"
#include "lang/lexer.h"

namespace dlprim {
namespace {

using Kind = Expression::Kind;

bool has(const Expression& tree, const std::string& name) {
    return (tree.kind == Kind::name && tree.name == name) ||
           std::ranges::any_of(tree.operands, [&](const auto& of) { return has(of, name); });
}

const AffineTerm* term_of(const AffineSum& sum, const std::string& index) {
    const auto found = std::ranges::find(sum.terms, index, &AffineTerm::index);
    return found == sum.terms.end() ? nullptr : &*found;
}

// An index of the statement as a sum of those that are left.
struct Solved {
    std::string index = {};
    AffineSum by = {};
    bool is_inside = false;  // whatever the values of those are
};

class Gather {
public:
    Gather(const Scatter& scatter, const NamedShapes& shapes, Names& names)
        : it_(scatter), shapes_(shapes), names_(names), value_(scatter.value) {
        extents_ = extents_of(it_.statement, shapes, false);
    }

    Gathered gathered() {
        const auto& places = it_.read.operands;
        const auto& dimensions = shapes_.tensors.at(it_.read.name);
        targets_.resize(places.size());
        for (std::size_t i = 0; i < places.size(); ++i) rename(places[i], dimensions[i], i);
        for (std::size_t i = 0; i < places.size(); ++i) solve(places[i], i);
        bool stays_inside = true;
        const bool gives_zero = std::ranges::all_of(solved_,
                                                    [&](const Solved& it) {
                                                        stays_inside = stays_inside && it.is_inside;
                                                        return it.is_inside || is_masked(it.index);
                                                    }) &&
                                is_product_of_reads(value_);
        if (!gives_zero) ask_inside();
        const bool reads_outside = gives_zero && !stays_inside;
        for (const auto& [target, place] : unsolved_) {
            conditions_.push_back(call_of("==", {named(target), placed(place, reads_outside)}));
        }
        value_ = placed(value_, reads_outside);
        repeat_what_is_left_out();
        guard();
        Statement made{.indices = targets_, .target = read_of("", targets_), .value = value_};
        const auto indices = indices_of(made, shapes_);
        if (indices.size() > targets_.size()) made.reduction = Reduction::sum;
        for (std::size_t i = 0; i < places.size(); ++i) extents_[targets_[i]] = dimensions[i];
        return {std::move(made), extents_};
    }

private:
    bool is_solved(const std::string& index) const {
        return std::ranges::find(solved_, index, &Solved::index) != solved_.end();
    }

    // x(i): the index of the statement goes along the dimension.
    void rename(const Expression& place, const Extent& dimension, std::size_t i) {
        if (place.kind != Kind::name || !shapes_.is_index(place.name) || is_solved(place.name)) {
            return;
        }
        targets_[i] = place.name;
        const bool is_inside = are_equal(extents_.at(place.name), dimension) || !dimension;
        solved_.push_back({place.name, {{{1, place.name}}, 0}, is_inside});
    }

    void solve(const Expression& place, std::size_t i) {
        if (!targets_[i].empty()) return;
        targets_[i] = names_.fresh("at");
        const auto sum = affine_of(placed(place, false), {});
        const AffineTerm* const open = sum ? index_to_solve(*sum) : nullptr;
        if (open == nullptr) {
            unsolved_.emplace_back(targets_[i], place);
            return;
        }
        // target = factor * index + rest
        AffineSum rest = *sum;
        std::erase_if(rest.terms, [&](const AffineTerm& it) { return it.index == open->index; });
        AffineSum by = added({{{1, targets_[i]}}, 0}, scaled(rest, -1));
        if (open->factor < 0) by = scaled(by, -1);
        const std::string index = open->index;
        for (Solved& it : solved_) {
            if (const AffineTerm* const term = term_of(it.by, index)) {
                const std::int64_t factor = term->factor;
                std::erase_if(it.by.terms, [&](const AffineTerm& t) { return t.index == index; });
                it.by = added(it.by, scaled(by, factor));
            }
        }
        solved_.push_back({index, std::move(by), false});
    }

    // Of those that are counted by ones: better one whose gradient is zero outside.
    const AffineTerm* index_to_solve(const AffineSum& sum) const {
        const AffineTerm* found = nullptr;
        for (const AffineTerm& term : sum.terms) {
            const bool is_own = std::ranges::find(targets_, term.index) != targets_.end() ||
                                !extents_.contains(term.index);
            if (is_own || std::abs(term.factor) != 1) continue;
            if (found == nullptr || (!is_of_result(found->index) && is_of_result(term.index))) {
                found = &term;
            }
        }
        return found;
    }

    bool is_of_result(const std::string& index) const {
        return std::ranges::find(it_.statement.indices, index) != it_.statement.indices.end();
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
                              are_equal(shape->second[i], extents_.at(index)))) {
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
                   std::ranges::none_of(solved_, [&](const Solved& it) {
                       return !it.is_inside && has(*factor, it.index);
                   });
        });
    }

    void ask_inside() {
        for (const Solved& it : solved_) {
            if (it.is_inside) continue;
            const Extent& extent = extents_.at(it.index);
            if (!extent) {
                refuse_at(it_.text, it_.statement.position, "The gradient by ", it_.read.name,
                          " needs how far ", it.index,
                          " goes, which only the caller says, expected a 'where' clause for it");
            }
            const Expression at = expression_of(it.by);
            if (it.by.terms.size() != 1 || it.by.constant != 0) {
                conditions_.push_back(call_of(">=", {at, number_of(0)}));
            }
            conditions_.push_back(call_of("<", {at, expression_of(*extent)}));
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
        const bool moves = std::ranges::any_of(solved_, [&](const Solved& it) {
            return has(from, it.index) && it.by != AffineSum{{{1, it.index}}, 0};
        });
        if (moves && (from.kind == Kind::call || from.kind == Kind::name)) {
            if (const auto sum = affine_of(from, {})) return expression_of(placed_sum(*sum));
        }
        Expression made = from;
        for (Expression& operand : made.operands) operand = placed(operand, reads_outside);
        if (from.kind == Kind::read && reads_outside && !is_inside(from, made)) {
            made.may_lie_outside = true;
        }
        return made;
    }

    AffineSum placed_sum(const AffineSum& sum) const {
        AffineSum made{{}, sum.constant};
        for (const AffineTerm& term : sum.terms) {
            const auto found = std::ranges::find(solved_, term.index, &Solved::index);
            const AffineSum by =
                found == solved_.end() ? AffineSum{{{1, term.index}}, 0} : found->by;
            made = added(made, scaled(by, term.factor));
        }
        return made;
    }

    // Whether a read stays inside where a solved index does not.
    bool is_inside(const Expression& before, const Expression& after) const {
        const auto shape = shapes_.tensors.find(before.name);
        const auto& dimensions = shapes_.tensors.at(it_.read.name);
        for (std::size_t i = 0; i < before.operands.size(); ++i) {
            const bool may_leave = std::ranges::any_of(solved_, [&](const Solved& it) {
                return !it.is_inside && has(before.operands[i], it.index);
            });
            if (!may_leave) continue;
            const auto target = std::ranges::find(targets_, after.operands[i].name);
            if (after.operands[i].kind != Kind::name || target == targets_.end() ||
                shape == shapes_.tensors.end() ||
                !are_equal(shape->second[i],
                           dimensions[static_cast<std::size_t>(target - targets_.begin())])) {
                return false;
            }
        }
        return true;
    }

    // An index that nothing reads any more adds the same as often as it has values.
    void repeat_what_is_left_out() {
        for (const auto& [index, extent] : extents_) {
            const auto is_read = [&](const Expression& it) { return has(it, index); };
            if (is_solved(index) || is_read(value_) || std::ranges::any_of(conditions_, is_read)) {
                continue;
            }
            if (!extent) {
                refuse_at(it_.text, it_.statement.position, "The gradient by ", it_.read.name,
                          " needs how far ", index,
                          " goes, which only the caller says, expected a 'where' clause for it");
            }
            if (*extent == AffineSum{{}, 1}) continue;
            value_ = call_of("*", {std::move(value_), expression_of(*extent)});
        }
    }

    const Scatter& it_;
    const NamedShapes& shapes_;
    Names& names_;
    Expression value_;
    Extents extents_;  // of the indices of the statement
    std::vector<std::string> targets_;
    std::vector<Solved> solved_;
    std::vector<std::pair<std::string, Expression>> unsolved_;  // that a target is equal to
    std::vector<Expression> conditions_;
};

}  // namespace

std::string Names::fresh(const std::string& name) {
    const bool is_free = find_function(name) == nullptr && taken_.insert(name).second;
    return is_free ? name : numbered(name);
}

std::string Names::numbered(const std::string& name) {
    std::string made;
    for (int i = 1; made.empty() || !taken_.insert(made).second; ++i) {
        made = name + "_" + std::to_string(i);
    }
    return made;
}

Gathered gathered(const Scatter& scatter, const NamedShapes& shapes, Names& names) {
    return Gather(scatter, shapes, names).gathered();
}

void bound_indices(Statement& statement, const NamedShapes& shapes, const Extents& extents) {
    const auto is_right = [&](const std::string& index) {
        const auto wanted = extents.find(index);
        return wanted == extents.end() || !wanted->second ||
               are_equal(extents_of(statement, shapes, true).at(index), wanted->second);
    };
    const auto all = indices_of(statement, shapes);
    // A clause for one bounds others, too.
    for (auto wrong = all.end(); (wrong = std::ranges::find_if_not(all, is_right)) != all.end();) {
        statement.ranges.push_back({.index = *wrong,
                                    .first = number_of(0),
                                    .end = expression_of(*extents.find(*wrong)->second)});
    }
}

}  // namespace dlprim
