#include "lang/gradients/places.h"

#include <algorithm>
#include <cstdlib>

#include "lang/functions.h"

namespace dlprim {
namespace {

using Kind = Expression::Kind;

const AffineTerm* term_of(const AffineSum& sum, const std::string& index) {
    const auto found = std::ranges::find(sum.terms, index, &AffineTerm::index);
    return found == sum.terms.end() ? nullptr : &*found;
}

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

SolvedPlaces::SolvedPlaces(const Expression& read, const Statement& statement,
                           const NamedShapes& shapes, Names& names)
    : targets(read.operands.size()),
      extents(extents_of(statement, shapes, false)),
      statement_(statement),
      shapes_(shapes),
      names_(names) {
    const auto& dimensions = shapes.tensors.at(read.name);
    for (std::size_t i = 0; i < targets.size(); ++i) rename(read.operands[i], dimensions[i], i);
    for (std::size_t i = 0; i < targets.size(); ++i) {
        if (!targets[i].empty()) continue;
        targets[i] = names.fresh("at");
        auto sum = affine_of(read.operands[i], {});
        if (sum) sum = placed(*sum);
        const AffineTerm* const term = sum ? term_to_solve(*sum) : nullptr;
        const bool is_best = term != nullptr && is_of_result(term->index);
        if (sum && !is_best && does_split(*sum, dimensions[i], i)) continue;
        if (term == nullptr) {
            unsolved.emplace_back(targets[i], read.operands[i]);
        } else {
            solve(*sum, *term, targets[i]);
        }
    }
}

// x(i): the index of the statement goes along the dimension.
void SolvedPlaces::rename(const Expression& place, const Extent& dimension, std::size_t i) {
    const bool is_solved = std::ranges::find(solved, place.name, &Solved::index) != solved.end();
    if (place.kind != Kind::name || !shapes_.is_index(place.name) || is_solved) return;
    targets[i] = place.name;
    const bool is_inside = are_equal(extents.at(place.name), dimension) || !dimension;
    solved.push_back({place.name, {{{1, place.name}}, 0}, is_inside});
}

// target = factor * index + rest
void SolvedPlaces::solve(const AffineSum& sum, const AffineTerm& term, const std::string& target) {
    AffineSum rest = sum;
    std::erase_if(rest.terms, [&](const AffineTerm& it) { return it.index == term.index; });
    const AffineSum by = added({{{1, target}}, 0}, scaled(rest, -1));
    add({term.index, scaled(by, term.factor), false});
}

void SolvedPlaces::add(Solved made) {
    for (Solved& it : solved) {
        const AffineTerm* const term = term_of(it.by, made.index);
        if (term == nullptr) continue;
        const std::int64_t factor = term->factor;
        std::erase_if(it.by.terms, [&](const auto& of) { return of.index == made.index; });
        it.by = added(it.by, scaled(made.by, factor));
    }
    solved.push_back(std::move(made));
}

// Whether a place is step * p + r + what is a multiple of the step + what has no index.
bool SolvedPlaces::does_split(const AffineSum& sum, const Extent& dimension, std::size_t i) {
    const AffineTerm *stepped = nullptr, *unit = nullptr;
    SplitPlace made{.place = i, .shift = {{}, sum.constant}};
    for (const AffineTerm& term : sum.terms) {
        if (!is_open(term.index)) {
            if (!shapes_.sizes.contains(term.index)) return false;
            made.shift.terms.push_back(term);
        } else if (term.factor == 1) {
            if (unit != nullptr) return false;
            unit = &term;
        } else if (stepped == nullptr || term.factor < stepped->factor) {
            stepped = &term;
        }
    }
    if (stepped == nullptr || stepped->factor < 2 || !dimension) return false;
    if (unit != nullptr && !extents.at(unit->index)) return false;
    made.step = stepped->factor;
    AffineSum by;
    for (const AffineTerm& term : sum.terms) {
        if (&term == stepped || &term == unit || !is_open(term.index)) continue;
        if (term.factor % made.step != 0) return false;
        by.terms.push_back({-term.factor / made.step, term.index});
    }
    made.quotient = names_.numbered(stepped->index);
    made.remainder = names_.fresh("rest");
    by = added({{{1, made.quotient}}, 0}, by);
    const AffineSum last = added(*dimension, scaled(added(made.shift, {{}, 1}), -1));
    extents[made.quotient] = added(quotient_of(last, made.step), {{}, 1});
    extents[made.remainder] = AffineSum{{}, made.step};
    if (unit == nullptr) {
        zeros.push_back(made.remainder);
    } else {
        by = added(by, scaled(split_unit(unit->index, made), -1));
    }
    add({stepped->index, std::move(by), false});
    splits.push_back(std::move(made));
    return true;
}

// r = step * c + remainder: the sum of c alone.
AffineSum SolvedPlaces::split_unit(const std::string& index, const SplitPlace& split) {
    const AffineSum extent = *extents.at(index);
    const bool is_whole = extent.terms.empty() && extent.constant % split.step == 0;
    AffineSum quotient;
    if (extent != AffineSum{{}, split.step}) {
        quotient.terms.push_back({1, names_.numbered(index)});
        extents[quotient.terms[0].index] =
            quotient_of(added(extent, {{}, split.step - 1}), split.step);
    }
    add({index, added(scaled(quotient, split.step), {{{1, split.remainder}}, 0}), is_whole});
    return quotient;
}

bool SolvedPlaces::is_open(const std::string& index) const {
    return extents.contains(index) && std::ranges::find(targets, index) == targets.end() &&
           std::ranges::find(solved, index, &Solved::index) == solved.end() &&
           std::ranges::find(splits, index, &SplitPlace::remainder) == splits.end() &&
           std::ranges::find(splits, index, &SplitPlace::quotient) == splits.end();
}

// Of those that are counted by ones: better one whose gradient is zero outside.
const AffineTerm* SolvedPlaces::term_to_solve(const AffineSum& sum) const {
    const AffineTerm* found = nullptr;
    for (const AffineTerm& term : sum.terms) {
        if (!is_open(term.index) || std::abs(term.factor) != 1) continue;
        if (found == nullptr || (!is_of_result(found->index) && is_of_result(term.index))) {
            found = &term;
        }
    }
    return found;
}

bool SolvedPlaces::is_of_result(const std::string& index) const {
    return std::ranges::find(statement_.indices, index) != statement_.indices.end();
}

AffineSum SolvedPlaces::placed(const AffineSum& sum) const {
    AffineSum made{{}, sum.constant};
    for (const AffineTerm& term : sum.terms) {
        const auto found = std::ranges::find(solved, term.index, &Solved::index);
        const AffineSum by = found == solved.end() ? AffineSum{{{1, term.index}}, 0} : found->by;
        made = added(made, scaled(by, term.factor));
    }
    return made;
}

}  // namespace dlprim
