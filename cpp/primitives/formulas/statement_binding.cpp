#include "primitives/formulas/statement_binding.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "lang/gathers.h"
#include "lang/lexer.h"
#include "primitives/statements/row_statement.h"

namespace dlprim {
namespace {

// Elements of a copy with zeros around it.
constexpr std::int64_t kMostPadded = std::int64_t{1} << 31;

// The first and the last place along a dimension that is read.
struct PlaceRange {
    std::int64_t first = 0;
    std::int64_t last = 0;
};

// Puts arrays in the place of names in one statement.
class Binder {
public:
    Binder(const BoundDefinition& definition, int number)
        : it_(definition),
          statement_(definition.definition.statements.at(static_cast<std::size_t>(number))),
          made_{.number = number} {
        BoundStatement& bound = made_.statement;
        bound.indices = definition.ranges.statements.at(static_cast<std::size_t>(number));
        bound.reduction = statement_.reduction;
        bound.initializes = statement_.initializes;
        if (gathers(statement_.value)) {
            gather(statement_.value);
        } else {
            bound.value = expression(statement_.value);
        }
        const PlacedTensor& result = it_.tensor(statement_.result);
        made_.result = result.place;
        bound.result = operand_of(result, places_of(statement_.target));
    }

    StatementBinding take() { return std::move(made_); }

private:
    Expression expression(const Expression& from) {
        if (from.kind == Expression::Kind::name) {
            const auto size = it_.ranges.sizes.find(from.name);
            if (size != it_.ranges.sizes.end()) {
                return {.number = static_cast<double>(size->second), .is_integer = true};
            }
            return it_.symbols.tensors.contains(from.name) ? read(from) : from;
        }
        if (from.kind == Expression::Kind::read) return read(from);
        Expression made = from;
        for (Expression& operand : made.operands) operand = expression(operand);
        return made;
    }

    AffineSum place_of(const Expression& place, const Expression& read) const {
        auto sum = affine_of(place, it_.ranges.sizes);
        if (!sum) {
            refuse_at(it_.definition.text, place.position, "A place of ", read.name,
                      " is no sum of indices times numbers and no tensor of integers");
        }
        return *std::move(sum);
    }

    std::vector<AffineSum> places_of(const Expression& read) const {
        std::vector<AffineSum> places;
        for (const Expression& place : read.operands) places.push_back(place_of(place, read));
        return places;
    }

    std::int64_t extent_of(const std::string& index) const {
        const auto found =
            std::find_if(made_.statement.indices.begin(), made_.statement.indices.end(),
                         [&](const IndexRange& it) { return it.name == index; });
        return found->extent;
    }

    PlaceRange range_of(const AffineSum& place) const {
        PlaceRange made{place.constant, place.constant};
        for (const AffineTerm& term : place.terms) {
            const std::int64_t farthest = term.factor * (extent_of(term.index) - 1);
            (farthest < 0 ? made.first : made.last) += farthest;
        }
        return made;
    }

    BoundOperand operand_of(const PlacedTensor& array, const std::vector<AffineSum>& places) const {
        BoundOperand made{.dtype = array.view.dtype};
        made.strides.assign(made_.statement.indices.size(), 0);
        for (std::size_t i = 0; i < places.size(); ++i) {
            made.offset += places[i].constant * array.view.strides[i];
            for (const AffineTerm& term : places[i].terms) {
                for (std::size_t index = 0; index < made_.statement.indices.size(); ++index) {
                    if (made_.statement.indices[index].name != term.index) continue;
                    made.strides[index] += term.factor * array.view.strides[i];
                }
            }
        }
        return made;
    }

    const PlacedTensor& values_of(const Expression& read) const {
        const PlacedTensor& array = it_.tensor(read.name);
        if (array.view.dtype == DType::s32) {
            refuse_at(it_.definition.text, read.position, "The tensor ", read.name,
                      " has integers, expected it at a place");
        }
        return array;
    }

    Expression read(const Expression& from) {
        const PlacedTensor& array = values_of(from);
        std::vector<AffineSum> places = places_of(from);
        std::vector<PlaceRange> ranges;
        for (const AffineSum& place : places) ranges.push_back(range_of(place));
        add_operand(array, std::move(places), ranges);
        return read_of(number_of_last());
    }

    // One operand is there for all reads of the same elements; factors of a sum stay apart.
    std::int64_t number_of_last() {
        const auto last = std::ssize(made_.operands) - 1;
        const auto& places = made_.operands;
        const auto& operands = made_.statement.operands;
        for (std::int64_t i = 0; made_.statement.reduction == Reduction::none && i < last; ++i) {
            const auto at = static_cast<std::size_t>(i);
            if (places[at] != places.back() || operands[at] != operands.back()) continue;
            made_.operands.pop_back();
            made_.statement.operands.pop_back();
            return i;
        }
        return last;
    }

    // Without "?" what may lie outside is a branch that is not always taken, but always read. What
    // is as large as a piece is read inside it.
    void add_operand(PlacedTensor array, std::vector<AffineSum> places,
                     const std::vector<PlaceRange>& ranges) {
        const auto& indices = made_.statement.indices;
        const bool is_empty = std::any_of(indices.begin(), indices.end(),
                                          [](const IndexRange& it) { return it.extent == 0; });
        bool outside = false;
        for (std::size_t i = 0; i < ranges.size(); ++i) {
            outside = outside || ranges[i].first < 0 || ranges[i].last >= array.view.shape[i];
        }
        if (outside && !is_empty && array.place.of != ArrayPlace::Of::own) {
            array = padded(array, ranges);
            for (std::size_t i = 0; i < places.size(); ++i) places[i].constant -= ranges[i].first;
        }
        made_.operands.push_back(array.place);
        made_.statement.operands.push_back(operand_of(array, places));
        padded_strides_ = array.view.strides;
    }

    void gather(const Expression& from) {
        const PlacedTensor& source = values_of(from);
        std::vector<AffineSum> places;
        std::vector<PlaceRange> ranges;
        std::vector<std::size_t> read_places;
        for (std::size_t i = 0; i < from.operands.size(); ++i) {
            const bool is_read = from.operands[i].kind == Expression::Kind::read;
            places.push_back(is_read ? AffineSum{} : place_of(from.operands[i], from));
            ranges.push_back(is_read ? PlaceRange{0, source.view.shape[i] - 1}
                                     : range_of(places.back()));
            if (is_read) read_places.push_back(i);
        }
        add_operand(source, places, ranges);
        const std::vector<std::int64_t> strides = padded_strides_;
        for (const std::size_t i : read_places) {
            const Expression& place = from.operands[i];
            const PlacedTensor& array = it_.tensor(place.name);
            if (array.view.dtype != DType::s32 || place.may_lie_outside) {
                refuse_at(it_.definition.text, place.position, "The places ", place.name,
                          " are computed, expected a parameter of int32 or int64 without '?'");
            }
            made_.operands.push_back(array.place);
            made_.statement.operands.push_back(operand_of(array, places_of(place)));
            made_.places.push_back({.extent = source.view.shape[i],
                                    .stride = strides[i],
                                    .is_wide = array.view.is_wide,
                                    .is_checked = !from.may_lie_outside});
        }
    }

    // A copy of what an access reads, with zeros where that is outside the array: from the first to
    // the last place of every dimension.
    PlacedTensor padded(const PlacedTensor& array, const std::vector<PlaceRange>& places) {
        Shape shape;
        for (const PlaceRange& place : places) shape.push_back(place.last - place.first + 1);
        PlacedTensor made{dense_view(array.view.name, array.view.dtype, shape), {}};
        BoundStatement copy{.value = {.kind = Expression::Kind::read}};
        BoundOperand from{.dtype = array.view.dtype};
        copy.result.dtype = array.view.dtype;
        std::int64_t elements = 1;
        for (std::size_t i = 0; i < places.size(); ++i) {
            const std::int64_t first = std::max<std::int64_t>(places[i].first, 0);
            const std::int64_t last = std::min(places[i].last, array.view.shape[i] - 1);
            copy.indices.push_back(
                {.name = std::to_string(i), .extent = std::max<std::int64_t>(last - first + 1, 0)});
            from.offset += first * array.view.strides[i];
            from.strides.push_back(array.view.strides[i]);
            copy.result.offset += (first - places[i].first) * made.view.strides[i];
            copy.result.strides.push_back(made.view.strides[i]);
            elements = checked_product(elements, shape[i]);
        }
        if (elements > kMostPadded) {
            throw std::invalid_argument(
                "a copy of " + array.view.name + " with zeros around it would have " +
                std::to_string(elements) + " elements, expected at most 2^31");
        }
        copy.operands = {from};
        made.place = it_.scratch(elements * size_of(array.view.dtype));
        made_.copies.push_back({.what = std::make_shared<const RowStatement>(copy),
                                .operands = {array.place},
                                .result = made.place,
                                .zeroed_bytes = elements * size_of(array.view.dtype),
                                .statement = made_.number});
        return made;
    }

    const BoundDefinition& it_;
    const Statement& statement_;
    StatementBinding made_;
    std::vector<std::int64_t> padded_strides_;  // of the operand that was added last
};

}  // namespace

StatementBinding bound(const BoundDefinition& definition, int number) {
    return Binder(definition, number).take();
}

}  // namespace dlprim
