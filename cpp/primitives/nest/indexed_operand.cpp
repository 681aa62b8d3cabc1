#include "primitives/nest/indexed_operand.h"

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

std::int64_t within_blocks(const LayoutDimension& dimension) {
    std::int64_t elements = 1;
    for (std::size_t i = 1; i < dimension.levels.size(); ++i) {
        elements *= dimension.levels[i].extent;
    }
    return elements;
}

}  // namespace

IndexedOperand::IndexedOperand(const Access& access, const Layout& layout)
    : dtype_(layout.dtype), layout_(&layout) {
    if (access.places.size() != layout.dimensions.size()) {
        refuse(access, "are " + std::to_string(access.places.size()) +
                           ", expected one for each of " +
                           std::to_string(layout.dimensions.size()) + " dimensions");
    }
    for (std::size_t i = 0; i < access.places.size(); ++i) {
        const AffineSum& sum = access.places[i];
        const LayoutDimension& dimension = layout.dimensions[i];
        if (sum.terms.size() < 2) {
            if (sum.constant != 0) refuse(access, "have a constant beside no sum of indices");
            if (sum.terms.empty()) continue;
            const AffineTerm& term = sum.terms.front();
            places_.push_back({letter_of(access, term), term.factor, &dimension});
            continue;
        }
        if (sum.terms.size() > 2 || sum.terms[0].factor < 1 || sum.terms[1].factor < 1 ||
            dimension.levels.size() > 1) {
            refuse(access,
                   "have a sum of indices, expected two of them with factors above 0 along "
                   "a dimension that is not cut into blocks");
        }
        sums_.push_back({.position = letter_of(access, sum.terms[0]),
                         .shift = letter_of(access, sum.terms[1]),
                         .factor = sum.terms[0].factor,
                         .shift_factor = sum.terms[1].factor,
                         .constant = sum.constant,
                         .extent = dimension.extent,
                         .stride = dimension.levels.front().stride});
    }
}

const IndexedOperand::Place* IndexedOperand::find(char index) const {
    const auto place = std::find_if(places_.begin(), places_.end(),
                                    [&](const Place& it) { return it.index == index; });
    return place == places_.end() ? nullptr : &*place;
}

std::int64_t IndexedOperand::extent(char index) const {
    const Place* const place = find(index);
    return place == nullptr || place->factor != 1 ? 0 : place->dimension->extent;
}

std::int64_t IndexedOperand::block(char index) const {
    const Place* const place = find(index);
    return place == nullptr ? 1 : within_blocks(*place->dimension);
}

std::int64_t IndexedOperand::offset(char index, std::int64_t value) const {
    const Place* const place = find(index);
    return place == nullptr ? 0 : place->dimension->offset(place->factor * value);
}

std::int64_t IndexedOperand::block_stride(char index, std::int64_t unit) const {
    const Place* const place = find(index);
    if (place == nullptr) return 0;
    // The storage of a single block may hold more than is in it.
    const bool blocked = within_blocks(*place->dimension) >= unit;
    return blocked ? place->factor * place->dimension->levels.front().stride
                   : place->dimension->offset(place->factor * unit);
}

std::int64_t IndexedOperand::step(char index, std::int64_t word) const {
    const Place* const place = find(index);
    if (place == nullptr) return 0;
    const auto& levels = place->dimension->levels;
    const bool skips = levels.size() > 1 && levels.back().extent == word;
    return place->factor * levels[levels.size() - (skips ? 2 : 1)].stride / word;
}

double IndexedOperand::bytes() const {
    if (layout_ == nullptr) return 0;
    auto bytes = static_cast<double>(size_of(dtype_));
    for (const LayoutDimension& dimension : layout_->dimensions) {
        bytes *= static_cast<double>(dimension.extent);
    }
    return bytes;
}

}  // namespace dlprim
