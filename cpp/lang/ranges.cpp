#include "lang/ranges.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <stdexcept>

#include "lang/lexer.h"

namespace dlprim {
namespace {

using Kind = Expression::Kind;

// An access that bounds ranges: a sum of indices which has to be at least 0 and less than `size`.
struct Constraint {
    // Which constraints are asked where the ones in front say nothing of an index.
    enum class Rank : std::uint8_t {
        certain,      // holds whenever the statement does
        conditional,  // of a read that "?:" may leave out
        zero_outside  // of an index alone: x?(n,p-1) has as many n as x
    };

    AffineSum sum = {};
    std::int64_t size = 0;
    Rank rank = Rank::certain;
    const Expression* place = nullptr;
    const std::string* tensor = nullptr;
};

struct Bounds {
    std::int64_t first = std::numeric_limits<std::int64_t>::min();
    std::int64_t last = std::numeric_limits<std::int64_t>::max();
};

class StatementRanges {
public:
    StatementRanges(const Definition& definition, const Statement& statement,
                    const Symbols& symbols, const Ranges& known)
        : text_(definition.text),
          statement_(statement),
          known_(known),
          names_(indices_of(statement, symbols)) {}

    std::vector<IndexRange> infer(const Constants& given) {
        for (const RangeClause& range : statement_.ranges) take_clause(range);
        for (const std::string& name : names_) take_given(name, given);
        access(statement_.target, Constraint::Rank::certain);
        for (const Expression& read : statement_.exists) {
            accesses(read, Constraint::Rank::certain);
        }
        accesses(statement_.value, Constraint::Rank::certain);
        for (const auto rank : {Constraint::Rank::certain, Constraint::Rank::conditional,
                                Constraint::Rank::zero_outside}) {
            while (solves_some(rank)) {
            }
        }
        require_all_solved();
        for (const Constraint& constraint : constraints_) require_inside(constraint);
        std::vector<IndexRange> made;
        for (const std::string& name : names_) {
            made.push_back({name, extents_.at(name), made.size() >= statement_.indices.size()});
        }
        return made;
    }

    // Behind infer().
    Shape shape_of_result() const {
        Shape made;
        for (const Expression& place : statement_.target.operands) {
            AffineSum sum = *affine_of(place, {});
            std::ranges::sort(sum.terms, {}, &AffineTerm::factor);
            std::int64_t extent = 1;
            for (const AffineTerm& term : sum.terms) {
                if (term.factor != extent) {
                    refuse(place.position, "The places of the result ", statement_.result,
                           " leave some out or meet some twice, expected digits such as 2*a+b "
                           "'where b in 0:2'");
                }
                extent = checked_product(extent, extents_.at(term.index));
            }
            made.push_back(extent);
        }
        return made;
    }

    // Of a caller's array, behind infer(): all of it and all of what is added to it, unless a
    // clause or a given extent says how far.
    void require_whole(const Shape& shape, const Constants& given) const {
        const auto said = [&](const std::string& index) {
            return given.contains(index) ||
                   std::ranges::find(statement_.ranges, index, &RangeClause::index) !=
                       statement_.ranges.end();
        };
        for (std::size_t i = 0; i < shape.size(); ++i) {
            const Expression& place = statement_.target.operands[i];
            if (place.kind != Kind::name || said(place.name)) continue;
            // What a contraction's operands have along the index (definition.cpp).
            const auto size = known_.sizes.find("." + place.name);
            const std::int64_t extent =
                size == known_.sizes.end() ? extents_.at(place.name) : size->second;
            if (extent == shape[i]) continue;
            refuse(place.position, "The result ", statement_.result, " has a dimension ", i, " of ",
                   shape[i], ", expected ", extent, " as what goes along ", place.name,
                   " has, or a clause such as 'where ", place.name,
                   " in 0:", std::min(extent, shape[i]), "'");
        }
    }

private:
    template <typename... Parts>
    [[noreturn]] void refuse(std::int64_t position, const Parts&... parts) const {
        refuse_at(text_, position, parts...);
    }

    std::int64_t bound(const Expression& expression) const {
        const auto sum = affine_of(expression, known_.sizes);
        if (!sum) refuse(expression.position, "A range has a bound that is no sum of sizes");
        return sum->constant;
    }

    void take_clause(const RangeClause& range) {
        const std::int64_t first = bound(range.first), end = bound(range.end);
        if (first != 0) refuse_shifted(range.index, first, range.position);
        if (end < 0) {
            refuse(range.position, "The range of ", range.index, " goes from 0 to ", end,
                   ", expected an end of at least 0");
        }
        extents_[range.index] = end;
    }

    [[noreturn]] void refuse_shifted(const std::string& index, std::int64_t first,
                                     std::int64_t position) const {
        const std::string digits = std::to_string(first).substr(first < 0 ? 1 : 0);
        refuse(position, "The range of ", index, " would begin at ", first, ", expected 0: write (",
               index, first < 0 ? " - " : " + ", digits, ") for ", index, ", say 'where ", index,
               " in 0:..', or read with '?', which gives zero outside");
    }

    void take_given(const std::string& name, const Constants& given) {
        const auto found = given.find(name);
        if (found == given.end()) return;
        const auto [extent, is_new] = extents_.emplace(name, found->second);
        if (found->second < 0 || extent->second != found->second) {
            refuse(statement_.position, "The extent of ", name, " is given as ", found->second,
                   ", expected ", (is_new ? "at least 0" : std::to_string(extent->second)));
        }
    }

    // All reads of a tree; those behind a condition are conditional.
    void accesses(const Expression& tree, Constraint::Rank rank) {
        if (tree.kind == Kind::read) access(tree, rank);
        const bool lazy = tree.kind == Kind::call &&
                          (tree.name == "?:" || tree.name == "&&" || tree.name == "||");
        for (const Expression& operand : tree.operands) {
            accesses(operand, lazy && &operand != tree.operands.data()
                                  ? Constraint::Rank::conditional
                                  : rank);
        }
    }

    void access(const Expression& read, Constraint::Rank rank) {
        const auto shape = known_.shapes.find(read.name);
        if (shape == known_.shapes.end()) return;  // the statement makes it, or it has no rank
        for (std::size_t i = 0; i < read.operands.size(); ++i) {
            const Expression& place = read.operands[i];
            auto sum = affine_of(place, known_.sizes);
            if (read.may_lie_outside) {
                rank = Constraint::Rank::zero_outside;
                if (place.kind != Kind::name) continue;
            }
            const auto is_known = [&](const AffineTerm& term) {
                return std::find(names_.begin(), names_.end(), term.index) != names_.end();
            };
            if (!sum || !std::all_of(sum->terms.begin(), sum->terms.end(), is_known)) continue;
            constraints_.push_back({std::move(*sum), shape->second[i], rank, &place, &read.name});
        }
    }

    // From the smallest to the largest value of a sum, without the terms of `open`.
    Bounds corners(const AffineSum& sum, const AffineTerm* open = nullptr) const {
        Bounds made{sum.constant, sum.constant};
        for (const AffineTerm& term : sum.terms) {
            if (&term == open) continue;
            const std::int64_t last = std::max<std::int64_t>(extents_.at(term.index), 1) - 1;
            std::int64_t& corner = term.factor < 0 ? made.first : made.last;
            corner = checked_sum(corner, checked_product(term.factor, last));
        }
        return made;
    }

    // The only term whose index has no range; null if there are none or several.
    const AffineTerm* open_term(const AffineSum& sum) const {
        const AffineTerm* open = nullptr;
        for (const AffineTerm& term : sum.terms) {
            if (extents_.contains(term.index)) continue;
            if (open != nullptr) return nullptr;
            open = &term;
        }
        return open;
    }

    // A round: gives a range to every index that a constraint bounds alone.
    bool solves_some(Constraint::Rank last_rank) {
        std::map<std::string, Bounds> found;
        const Constraint* last = nullptr;
        for (const Constraint& it : constraints_) {
            const AffineTerm* const open = it.rank <= last_rank ? open_term(it.sum) : nullptr;
            if (open == nullptr) continue;
            // 0 <= factor * index + rest < size
            const Bounds rest = corners(it.sum, open);
            const std::int64_t from = checked_product(rest.first, -1);
            const std::int64_t to = checked_sum(it.size - 1, checked_product(rest.last, -1));
            const bool up = open->factor > 0;
            const std::int64_t step = up ? open->factor : checked_product(open->factor, -1);
            const std::int64_t low = up ? from : checked_product(to, -1);
            const std::int64_t high = up ? to : checked_product(from, -1);
            Bounds& bounds = found[open->index];
            bounds.first = std::max(
                bounds.first, checked_product(floor_quotient(checked_product(low, -1), step), -1));
            bounds.last = std::min(bounds.last, floor_quotient(high, step));
            last = &it;
        }
        for (const auto& [name, bounds] : found) {
            const std::int64_t position = last->place->position;
            if (bounds.first != 0) refuse_shifted(name, bounds.first, position);
            if (bounds.last < -1) {
                refuse(position, "The range of ", name, " would end at ", bounds.last + 1,
                       ", expected tensors of which the larger ones hold the smaller ones");
            }
            extents_[name] = bounds.last + 1;
        }
        return !found.empty();
    }

    void require_all_solved() const {
        std::string open;
        for (const std::string& name : names_) {
            if (!extents_.contains(name)) open += (open.empty() ? "" : ", ") + name;
        }
        if (open.empty()) return;
        refuse(statement_.position, "The shapes of the tensors could not infer ranges of ", open,
               ", expected a clause such as 'where i in 0:10', or sizes for them");
    }

    void require_inside(const Constraint& it) const {
        if (it.rank != Constraint::Rank::certain) return;
        // What is never read is nowhere.
        for (const auto& [name, extent] : extents_) {
            if (extent == 0) return;
        }
        const Bounds places = corners(it.sum);
        if (places.first >= 0 && places.last < it.size) return;
        refuse(it.place->position, "The places ", places.first, " to ", places.last, " of ",
               *it.tensor, " are not all in its dimension of ", it.size,
               ", expected ranges that fit, or '?' behind its name for zeros outside");
    }

    const std::string& text_;
    const Statement& statement_;
    const Ranges& known_;
    std::vector<std::string> names_;
    std::map<std::string, std::int64_t, std::less<>> extents_;
    std::vector<Constraint> constraints_;
};

std::int64_t value_of(const Definition& definition, const Expression& size,
                      const Constants& sizes) {
    const auto sum = affine_of(size, sizes);
    if (!sum) refuse_at(definition.text, size.position, "A dimension is no sum of sizes");
    return sum->constant;
}

// That a shape fits what is said of its tensor, and what it says of sizes; formulas of these when
// all are known.
void bind(const Definition& definition, const Parameter& parameter, const Shape& shape,
          Constants& sizes, bool formulas) {
    for (std::size_t i = 0; i < shape.size(); ++i) {
        const Expression& size = parameter.dimensions[i];
        if ((size.kind == Kind::call) != formulas) continue;
        const std::int64_t expected = size.kind == Kind::name
                                          ? sizes.emplace(size.name, shape[i]).first->second
                                          : value_of(definition, size, sizes);
        if (shape[i] == expected) continue;
        const bool is_named = size.kind == Kind::name && size.name.front() != '.';
        refuse_at(definition.text, parameter.position, "The argument ", parameter.name,
                  " has a dimension ", i, " of ", shape[i], ", expected ",
                  (is_named ? size.name + " = " : ""), expected,
                  (size.kind == Kind::name && !is_named
                       ? " as another dimension along " + size.name.substr(1) + " has"
                       : ""));
    }
}

void require_rank(const std::string& name, const Shape& shape, const Symbols& symbols) {
    const auto tensor = symbols.tensors.find(name);
    if (tensor == symbols.tensors.end()) {
        throw std::invalid_argument("The formula has no tensor " + name + ", expected one.");
    }
    const auto least = std::min_element(shape.begin(), shape.end());
    if (shape.size() == tensor->second.rank && (shape.empty() || *least >= 0)) return;
    throw std::invalid_argument("The argument " + name + " has " + std::to_string(shape.size()) +
                                " dimensions, expected " + std::to_string(tensor->second.rank) +
                                " of at least 0.");
}

}  // namespace

Ranges ranges_of(const Definition& definition, const Symbols& symbols, const Shapes& shapes,
                 const Constants& given) {
    Ranges made{.shapes = shapes};
    for (const auto& [name, shape] : shapes) require_rank(name, shape, symbols);
    for (const auto& [name, value] : given) {
        if (symbols.sizes.contains(name)) made.sizes.emplace(name, value);
    }
    for (const Parameter& parameter : definition.parameters) {
        const auto shape = shapes.find(parameter.name);
        if (shape == shapes.end()) {
            throw std::invalid_argument("The argument " + parameter.name +
                                        " is missing, expected its shape.");
        }
        bind(definition, parameter, shape->second, made.sizes, false);
    }
    for (const Parameter& parameter : definition.parameters) {
        bind(definition, parameter, shapes.at(parameter.name), made.sizes, true);
    }
    for (const Statement& statement : definition.statements) {
        StatementRanges ranges(definition, statement, symbols, made);
        made.statements.push_back(ranges.infer(given));
        std::int64_t elements = 1;
        for (const IndexRange& index : made.statements.back()) {
            elements = checked_product(elements, std::max<std::int64_t>(index.extent, 1));
        }
        const Shape shape = ranges.shape_of_result();
        const auto callers = shapes.find(statement.result);
        if (callers != shapes.end()) ranges.require_whole(callers->second, given);
        made.shapes.emplace(statement.result, shape);
    }
    for (const auto& [name, value] : given) {
        const auto has = [&](const std::vector<IndexRange>& indices) {
            return std::ranges::find(indices, name, &IndexRange::name) != indices.end();
        };
        if (symbols.sizes.contains(name) || std::ranges::any_of(made.statements, has)) continue;
        throw std::invalid_argument("The formula has no size and no index " + name +
                                    ", expected one of them for the given " +
                                    std::to_string(value) + ".");
    }
    return made;
}

}  // namespace dlprim
