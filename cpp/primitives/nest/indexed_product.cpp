#include "primitives/nest/indexed_product.h"

#include <algorithm>
#include <stdexcept>

namespace dlprim {
namespace {

[[noreturn]] void refuse(const Access& access, const std::string& what) {
    throw std::invalid_argument("The places of " + access.tensor + " " + what + ".");
}

char letter_of(const Access& access, const AffineTerm& term) {
    if (term.index.size() == 1) return term.index.front();
    refuse(access, "have an index '" + term.index + "', expected one letter");
}

Place place_of(const Access& access, const AffineSum& sum, const LayoutDimension& dimension) {
    Place made{.dimension = &dimension};
    if (sum.terms.size() < 2 && sum.constant != 0) {
        refuse(access, "have a constant beside no sum of indices");
    }
    if (sum.terms.empty()) return made;
    made.index = letter_of(access, sum.terms[0]);
    made.sum.factor = sum.terms[0].factor;
    if (sum.terms.size() == 1) return made;
    if (sum.terms.size() > 2 || sum.terms[0].factor < 1 || sum.terms[1].factor < 1 ||
        dimension.levels.size() > 1) {
        refuse(access,
               "have a sum of indices, expected two of them with factors above 0 along "
               "a dimension that is not cut into blocks");
    }
    made.shift = letter_of(access, sum.terms[1]);
    made.sum.shift_factor = sum.terms[1].factor;
    made.sum.constant = sum.constant;
    return made;
}

std::int64_t within_blocks(const LayoutDimension& dimension) {
    std::int64_t elements = 1;
    for (std::size_t i = 1; i < dimension.levels.size(); ++i) {
        elements *= dimension.levels[i].extent;
    }
    return elements;
}

}  // namespace

IndexedOperand::IndexedOperand(const Access& access, const Layout& layout) : layout_(&layout) {
    if (access.places.size() != layout.dimensions.size()) {
        refuse(access, "are " + std::to_string(access.places.size()) +
                           ", expected one for each of " +
                           std::to_string(layout.dimensions.size()) + " dimensions");
    }
    for (std::size_t i = 0; i < access.places.size(); ++i) {
        const Place place = place_of(access, access.places[i], layout.dimensions[i]);
        if (place.index != 0) places_.push_back(place);
    }
}

const Place* IndexedOperand::find(char index, bool in_sum) const {
    const auto place = std::find_if(places_.begin(), places_.end(), [&](const Place& it) {
        return it.index == index && (it.shift != 0) == in_sum;
    });
    return place == places_.end() ? nullptr : &*place;
}

bool IndexedOperand::mentions(char index) const {
    return std::any_of(places_.begin(), places_.end(),
                       [&](const Place& it) { return it.index == index || it.shift == index; });
}

std::int64_t IndexedOperand::extent(char index) const {
    const Place* const place = alone(index);
    return place == nullptr || place->sum.factor != 1 ? 0 : place->dimension->extent;
}

std::int64_t IndexedOperand::block(char index) const {
    const Place* const place = alone(index);
    return place == nullptr ? 1 : within_blocks(*place->dimension);
}

std::int64_t IndexedOperand::offset(char index, std::int64_t value) const {
    const Place* const place = alone(index);
    return place == nullptr ? 0 : place->dimension->offset(place->sum.factor * value);
}

std::int64_t IndexedOperand::block_stride(char index, std::int64_t unit) const {
    const Place* const place = alone(index);
    if (place == nullptr) return 0;
    // The storage of a single block may hold more than is in it.
    const bool blocked = within_blocks(*place->dimension) >= unit;
    return blocked ? place->sum.factor * place->dimension->levels.front().stride
                   : place->dimension->offset(place->sum.factor * unit);
}

std::int64_t IndexedOperand::step(char index, std::int64_t word) const {
    const Place* const place = alone(index);
    if (place == nullptr) return 0;
    const auto& levels = place->dimension->levels;
    const bool skips = levels.size() > 1 && levels.back().extent == word;
    return place->sum.factor * levels[levels.size() - (skips ? 2 : 1)].stride / word;
}

double IndexedOperand::bytes() const {
    if (layout_ == nullptr) return 0;
    auto bytes = static_cast<double>(size_of(layout_->dtype));
    for (const LayoutDimension& dimension : layout_->dimensions) {
        bytes *= static_cast<double>(dimension.extent);
    }
    return bytes;
}

IndexedProduct::IndexedProduct(const ProductFormula& statement, const ContractionLayouts& layouts,
                               const Mapping& how)
    : mapping(how), c(statement.result, layouts.c) {
    if (!statement.factors.empty()) a = {statement.factors[0], layouts.a};
    if (statement.factors.size() > 1) b = {statement.factors[1], layouts.b};
    for (const IndexedOperand* const operand : {&c, &a, &b}) {
        for (const Place& place : operand->places()) {
            for (const char letter : {place.index, place.shift}) {
                if (letter != 0 && !is_index(letter)) indices += letter;
            }
        }
    }
    word = elements_per_word(a.dtype());
    require_places(statement);
    rows = line_of(rows_letter(), !scatters());
    for (const AxisPhase& phase : rows.axis.phases) {
        if (rows.is_sum()) {
            pieces.push_back(cover(rows.axis, phase, mapping.cover));
        } else {
            pieces.push_back({{{0, phase.count}, phase.shifts, true, true}});
        }
    }
    for (const char letter : mapping.loops) {
        const bool is_sum = c.sum_at(letter) != nullptr || a.sum_at(letter) != nullptr;
        if (letter != rows_letter() && is_sum) walk_letter = letter;
    }
    if (walk_letter != 0) walk = line_of(walk_letter, true);
    if (mapping.shifts.empty()) return;
    depth = line_of(mapping.depth.back(), false);
    if (!depth.is_sum()) depth.a = a.step(mapping.depth.back(), word);
}

Line IndexedProduct::line_of(char index, bool solved) const {
    const std::int64_t count = extent(index);
    Line line{.a = a.step(index), .b = b.step(index), .c = c.step(index)};
    const Place* const result = c.sum_at(index);
    const Place* const place = result != nullptr ? result : a.sum_at(index);
    if (place == nullptr) {
        line.axis = reading_axis(count, count, {});
        return line;
    }
    line.shift = place->shift;
    AxisSum sum = place->sum;
    sum.shifts = extent(place->shift);
    const std::int64_t places = place->dimension->extent;
    line.axis = result != nullptr && solved ? solved_axis(count, places, sum)
                                            : reading_axis(places, count, sum);
    (result != nullptr ? line.c : line.a) = place->dimension->levels.front().stride;
    return line;
}

std::int64_t IndexedProduct::ldc() const {
    return rows.is_sum() && mapping.rows.size() == 1 ? rows.c : c.step(rows_letter());
}

bool IndexedProduct::rows_are_whole() const {
    return mapping.rows.size() == 1 && pieces.size() == 1 && pieces.front().size() == 1 &&
           mapping.loops.find(rows_letter()) != std::string::npos;
}

std::int64_t IndexedProduct::block_rows() const {
    if (scatters()) return rows.axis.in;
    if (mapping.rows.size() == 1) return rows.axis.out;
    std::int64_t neighbours = 1;
    for (const char index : mapping.rows) neighbours *= extent(index);
    return neighbours;
}

std::int64_t IndexedProduct::selected() const {
    std::int64_t combinations = 1;
    for (const char index : mapping.shifts) combinations *= extent(index);
    return combinations;
}

std::int64_t IndexedProduct::extent(char index) const {
    for (const IndexedOperand* const operand : {&c, &a, &b}) {
        if (const std::int64_t found = operand->extent(index); found > 0) return found;
    }
    return 0;
}

std::int64_t IndexedProduct::block(char index) const {
    return std::max({c.block(index), a.block(index), b.block(index)});
}

// Every index has an extent, and no place without "?" lies outside.
void IndexedProduct::require_places(const ProductFormula& statement) const {
    const auto refuse = [&](const std::string& what) {
        throw std::invalid_argument("The formula \"" + statement.text + "\" " + what + ".");
    };
    for (const char index : indices) {
        if (c.alone(index) || a.alone(index) || b.alone(index)) continue;
        refuse("has no place for the index " + std::string(1, index) + " alone, expected one");
    }
    const auto require_inside = [&](const Access& access, const IndexedOperand& operand) {
        if (access.may_lie_outside) return;
        for (const Place& place : operand.places()) {
            if (place.shift == 0) continue;
            const std::int64_t last = place.sum.constant +
                                      place.sum.factor * (extent(place.index) - 1) +
                                      place.sum.shift_factor * (extent(place.shift) - 1);
            if (place.sum.constant >= 0 && last < place.dimension->extent) continue;
            refuse("has places " + std::to_string(place.sum.constant) + " to " +
                   std::to_string(last) + " in a dimension of " +
                   std::to_string(place.dimension->extent) + " of " + access.tensor +
                   ", expected \"?\" behind its name");
        }
    };
    require_inside(statement.result, c);
    if (!statement.factors.empty()) require_inside(statement.factors[0], a);
    if (statement.factors.size() > 1) require_inside(statement.factors[1], b);
}

}  // namespace dlprim
