#include "lang/gradients/extents.h"

#include <algorithm>
#include <utility>

#include "lang/gradients/printed.h"
#include "lang/parser.h"

namespace dlprim {
namespace {

using Kind = Expression::Kind;

AffineSum sorted(AffineSum sum) {
    std::ranges::sort(sum.terms, {}, &AffineTerm::index);
    return sum;
}

AffineSum minus(const AffineSum& a, const AffineSum& b) { return added(a, scaled(b, -1)); }
AffineSum constant(std::int64_t number) { return {{}, number}; }
AffineSum formula(const std::string& text) { return {{{1, text}}, 0}; }

AffineSum smaller(const AffineSum& a, const AffineSum& b) {
    const AffineSum difference = minus(a, b);
    if (difference.terms.empty()) return difference.constant < 0 ? a : b;
    return formula("min(" + text_of(expression_of(sorted(a))) + ", " +
                   text_of(expression_of(sorted(b))) + ")");
}

// 0 <= sum of indices + rest < size
struct Access {
    std::vector<AffineTerm> indices = {};
    AffineSum rest = {};
    AffineSum size = {};
    int rank = 0;  // as Constraint::Rank of ranges.cpp
};

class Inference {
public:
    Inference(const Statement& statement, const NamedShapes& shapes, bool is_sure)
        : shapes_(shapes), is_sure_(is_sure) {
        for (const RangeClause& range : statement.ranges) {
            made_[range.index] = sorted(sum_of(range.end));
        }
        read(statement.target, 0);
        for (const Expression& it : statement.exists) reads(it, 0);
        reads(statement.value, 0);
        for (int rank = 0; rank < 3; ++rank) {
            while (solves_some(rank)) {
            }
        }
        for (const std::string& index : indices_of(statement, shapes))
            made_.emplace(index, Extent{});
    }

    Extents take() { return std::move(made_); }

private:
    void reads(const Expression& tree, int rank) {
        if (tree.kind == Kind::read) read(tree, rank);
        const bool lazy = tree.name == "?:" || tree.name == "&&" || tree.name == "||";
        for (std::size_t i = 0; i < tree.operands.size(); ++i) {
            reads(tree.operands[i], lazy && i > 0 ? 1 : rank);
        }
    }

    void read(const Expression& it, int rank) {
        const auto shape = shapes_.tensors.find(it.name);
        if (shape == shapes_.tensors.end()) return;
        for (std::size_t i = 0; i < it.operands.size(); ++i) {
            if (it.may_lie_outside) rank = 2;
            const auto sum = affine_of(it.operands[i], {});
            if (!sum || !shape->second[i] ||
                (it.may_lie_outside && it.operands[i].kind != Kind::name)) {
                continue;
            }
            Access access{.rest = constant(sum->constant), .size = *shape->second[i], .rank = rank};
            for (const AffineTerm& term : sum->terms) {
                const bool is_index = shapes_.is_index(term.index);
                (is_index ? access.indices : access.rest.terms).push_back(term);
            }
            accesses_.push_back(std::move(access));
        }
    }

    // The only index without an extent; null if there are none or several.
    const AffineTerm* open_term(const Access& access) const {
        const AffineTerm* open = nullptr;
        for (const AffineTerm& term : access.indices) {
            if (made_.contains(term.index)) continue;
            if (open != nullptr) return nullptr;
            open = &term;
        }
        return open;
    }

    // A round: from accesses that leave one index open.
    bool solves_some(int last_rank) {
        Extents found;
        for (const Access& it : accesses_) {
            const AffineTerm* const open = it.rank <= last_rank ? open_term(it) : nullptr;
            if (open == nullptr) continue;
            const Extent extent = bound(it, *open);
            const auto [known, is_new] = found.emplace(open->index, extent);
            if (is_new || !known->second) continue;
            known->second = extent ? Extent(smaller(*known->second, *extent)) : extent;
        }
        for (auto& [name, extent] : found) made_[name] = extent ? sorted(*extent) : extent;
        return !found.empty();
    }

    Extent bound(const Access& it, const AffineTerm& open) const {
        AffineSum first = it.rest, last = it.rest;  // of all but the open term
        for (const AffineTerm& term : it.indices) {
            if (&term == &open) continue;
            const Extent& extent = made_.at(term.index);
            if (!extent) return {};
            AffineSum& corner = term.factor < 0 ? first : last;
            corner = added(corner, scaled(added(*extent, constant(-1)), term.factor));
        }
        const bool up = open.factor > 0;
        const AffineSum from = scaled(first, -1);
        const AffineSum to = minus(added(it.size, constant(-1)), last);
        const AffineSum low = up ? from : scaled(to, -1), high = up ? to : first;
        const std::int64_t step = up ? open.factor : -open.factor;
        const bool begins_at_0 = low.terms.empty() && low.constant <= 0 && low.constant > -step;
        if (is_sure_ && !begins_at_0) return {};
        return added(quotient_of(high, step), constant(1));
    }

    const NamedShapes& shapes_;
    bool is_sure_;
    std::vector<Access> accesses_;
    Extents made_;
};

void collect(const Expression& tree, const NamedShapes& shapes, std::vector<std::string>& into) {
    if (tree.kind == Kind::name && shapes.is_index(tree.name) &&
        std::ranges::find(into, tree.name) == into.end()) {
        into.push_back(tree.name);
    }
    for (const Expression& operand : tree.operands) collect(operand, shapes, into);
}

}  // namespace

Expression formula_of(const AffineSum& extent) {
    return parse_statement("extent = " + text_of(expression_of(extent))).value;
}

AffineSum quotient_of(const AffineSum& sum, std::int64_t step) {
    if (step == 1) return sum;
    if (sum.terms.empty()) return constant(floor_quotient(sum.constant, step));
    return formula("((" + text_of(expression_of(sorted(sum))) + ") / " + std::to_string(step) +
                   ")");
}

AffineSum sum_of(const Expression& extent) {
    if (const auto sum = affine_of(extent, {})) return *sum;
    const std::string& name = extent.name;
    if (extent.operands.size() == 2) {
        const AffineSum a = sum_of(extent.operands[0]), b = sum_of(extent.operands[1]);
        if (name == "+") return added(a, b);
        if (name == "-") return minus(a, b);
        if (name == "*" && a.terms.empty()) return scaled(b, a.constant);
        if (name == "/" && b.terms.empty() && b.constant > 0) return quotient_of(a, b.constant);
        if (name == "min") return smaller(a, b);
    }
    return formula("(" + text_of(extent) + ")");
}

bool are_equal(const Extent& a, const Extent& b) { return a && b && minus(*a, *b) == AffineSum{}; }

Extents extents_of(const Statement& statement, const NamedShapes& shapes, bool is_sure) {
    return Inference(statement, shapes, is_sure).take();
}

std::vector<Extent> shape_of(const Statement& statement, const Extents& extents) {
    std::vector<Extent> made;
    for (const Expression& place : statement.target.operands) {
        Extent last = constant(0);
        const AffineSum sum = *affine_of(place, {});
        for (const AffineTerm& term : sum.terms) {
            const Extent& extent = extents.at(term.index);
            last = extent && last
                       ? Extent(added(*last, scaled(minus(*extent, constant(1)), term.factor)))
                       : Extent();
        }
        made.push_back(last ? Extent(sorted(added(*last, constant(1)))) : last);
    }
    return made;
}

std::vector<std::string> indices_of(const Statement& statement, const NamedShapes& shapes) {
    std::vector<std::string> made;
    collect(statement.target, shapes, made);
    collect(statement.value, shapes, made);
    return made;
}

}  // namespace dlprim
