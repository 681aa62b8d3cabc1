#include "primitives/nest/indexed_product.h"

#include <algorithm>
#include <stdexcept>

namespace dlprim {
namespace {

Axis plain_axis(std::int64_t extent) { return reading_axis(extent, extent, {}); }

AxisSum sum_of(const SumPlace& place, std::int64_t shifts) {
    return {.shifts = shifts,
            .factor = place.factor,
            .shift_factor = place.shift_factor,
            .constant = place.constant};
}

}  // namespace

IndexedProduct::IndexedProduct(const Statement& statement, const ContractionLayouts& layouts,
                               const Mapping& how)
    : mapping(how), uses(uses_of_indices(statement)), c(statement.result, layouts.c) {
    if (!statement.factors.empty()) a = {statement.factors[0], layouts.a};
    if (statement.factors.size() > 1) b = {statement.factors[1], layouts.b};
    word = elements_per_word(a.dtype());
    require_places(statement);
    const char rows_index = mapping.rows.back();
    const SumPlace* const scatter = sum_at(rows_index);
    scatters_ = scatter != nullptr && mapping.columns.size() > 1;
    rows = line_of(rows_index, !scatters_);
    for (const char letter : mapping.loops) {
        if (letter != rows_index && sum_at(letter) != nullptr) walk_ = letter;
    }
    if (walk_ != 0) walk = line_of(walk_, true);
    if (mapping.shifts.empty()) return;
    depth = line_of(mapping.depth.back(), false);
    if (!depth.is_sum()) depth.a = a.step(mapping.depth.back(), word);
}

const SumPlace* IndexedProduct::sum_at(char position) const {
    for (const IndexedOperand* const operand : {&c, &a}) {
        for (const SumPlace& place : operand->sums()) {
            if (place.position == position) return &place;
        }
    }
    return nullptr;
}

Line IndexedProduct::line_of(char index, bool solved) const {
    const std::int64_t count = extent(index);
    Line line{
        .axis = plain_axis(count), .a = a.step(index), .b = b.step(index), .c = c.step(index)};
    const SumPlace* const place = sum_at(index);
    if (place == nullptr) return line;
    line.shift = place->shift;
    const AxisSum sum = sum_of(*place, extent(place->shift));
    const bool in_result = !c.sums().empty();
    line.axis = in_result && solved ? solved_axis(count, place->extent, sum)
                                    : reading_axis(place->extent, count, sum);
    (in_result ? line.c : line.a) = place->stride;
    return line;
}

std::int64_t IndexedProduct::ldc() const {
    return rows.is_sum() && mapping.rows.size() == 1 ? rows.c : c.step(mapping.rows.back());
}

std::int64_t IndexedProduct::extent(char index) const {
    for (const IndexedOperand* const operand : {&c, &a, &b}) {
        if (operand->has(index)) {
            const std::int64_t found = operand->extent(index);
            if (found > 0 || operand == &b) return found;
        }
    }
    return 0;
}

std::int64_t IndexedProduct::block(char index) const {
    return std::max({c.block(index), a.block(index), b.block(index)});
}

bool IndexedProduct::is_index(char letter) const {
    return std::any_of(uses.begin(), uses.end(),
                       [&](const IndexUse& use) { return use.index.front() == letter; });
}

bool IndexedProduct::is_in_result(char index) const {
    return std::any_of(uses.begin(), uses.end(), [&](const IndexUse& use) {
        return use.index.front() == index && use.in_result;
    });
}

// Every index has an extent, and no place without "?" lies outside.
void IndexedProduct::require_places(const Statement& statement) const {
    const auto refuse = [&](const std::string& what) {
        throw std::invalid_argument("The formula \"" + to_string(statement) + "\" " + what + ".");
    };
    for (const IndexUse& use : uses) {
        const char index = use.index.front();
        if (c.has(index) || a.has(index) || b.has(index)) continue;
        refuse("has no place for the index " + use.index + " alone, expected one");
    }
    const auto require_inside = [&](const Access& access, const IndexedOperand& operand) {
        if (access.may_lie_outside) return;
        for (const SumPlace& sum : operand.sums()) {
            const std::int64_t last = sum.constant + sum.factor * (extent(sum.position) - 1) +
                                      sum.shift_factor * (extent(sum.shift) - 1);
            if (sum.constant >= 0 && last < sum.extent) continue;
            refuse("has places " + std::to_string(sum.constant) + " to " + std::to_string(last) +
                   " in a dimension of " + std::to_string(sum.extent) + " of " + access.tensor +
                   ", expected \"?\" behind its name");
        }
    };
    require_inside(statement.result, c);
    if (!statement.factors.empty()) require_inside(statement.factors[0], a);
    if (statement.factors.size() > 1) require_inside(statement.factors[1], b);
}

}  // namespace dlprim
