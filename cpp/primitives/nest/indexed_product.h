// A statement with layouts and a mapping, by index: how far elements of the operands are from each
// other along it, and the lines along which calls of the kernel walk, which may be sums of two
// indices (affine_axis.h). What contraction_builder.cpp derives loops from, and
// contraction_terms.cpp terms.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "primitives/nest/affine_axis.h"
#include "primitives/nest/contraction_builder.h"

namespace dlprim {

// A place of an operand: an index, or a sum of two, of which the first one is the position.
struct Place {
    char index = 0;    // 0: none, which is no place to find
    char shift = 0;    // 0: no sum
    AxisSum sum = {};  // without a shift its factor alone; how many shifts there are only all say
    const LayoutDimension* dimension = nullptr;
};

class IndexedOperand {
public:
    IndexedOperand() = default;  // that is not there: nothing moves along any index
    // Throws std::invalid_argument unless there is a place for every dimension and each is none or
    // one index, or a sum of two with positive factors along a dimension of one level.
    IndexedOperand(const Access& access, const Layout& layout);

    const std::vector<Place>& places() const { return places_; }
    // The place that is this index, or the sum that has this position; null without.
    const Place* alone(char index) const { return find(index, false); }
    const Place* sum_at(char position) const { return find(position, true); }
    bool mentions(char index) const;
    // 0 where the index has no place of its own.
    std::int64_t extent(char index) const;
    // Of the blocks that a dimension is cut into, 1 where it is not.
    std::int64_t block(char index) const;
    // Elements from 0 to `value` of an index.
    std::int64_t offset(char index, std::int64_t value) const;
    // From one block of `unit` to the next.
    std::int64_t block_stride(char index, std::int64_t unit) const;
    // From one index to the next within a block; of neighbours in words of so many elements, in
    // words.
    std::int64_t step(char index, std::int64_t word = 1) const;
    DType dtype() const { return layout_ == nullptr ? DType::f32 : layout_->dtype; }
    // Of the elements that exist: padding is never touched.
    double bytes() const;

private:
    const Place* find(char index, bool in_sum) const;

    const Layout* layout_ = nullptr;
    std::vector<Place> places_;
};

// An index along which calls walk, as an axis. Where it is no sum, every output reads the input of
// its own number.
struct Line {
    Axis axis = {0, 0, {{.shifts = {{}}}}};
    std::int64_t a = 0;  // elements from an input to the next
    std::int64_t b = 0;
    std::int64_t c = 0;  // from an output to the next
    char shift = 0;      // the index of the shift; 0: no sum

    bool is_sum() const { return shift != 0; }
};

struct IndexedProduct {
    // The layouts must outlive it.
    IndexedProduct(const ProductFormula& statement, const ContractionLayouts& layouts,
                   const Mapping& mapping);

    std::int64_t extent(char index) const;
    std::int64_t block(char index) const;
    bool is_index(char letter) const { return indices.find(letter) != std::string::npos; }
    char rows_letter() const { return mapping.rows.back(); }
    // Where rows of the result follow the positions of a sum in it, windows of the result overlap.
    bool scatters() const {
        return c.sum_at(rows_letter()) != nullptr && mapping.columns.size() > 1;
    }
    // The one inside a call: that of the rows, or of the depth.
    const Line& inner_line() const { return mapping.shifts.empty() ? rows : depth; }
    std::int64_t ldc() const;
    // One piece spans all rows: they can be cut anywhere.
    bool rows_are_whole() const;
    // Of a block where its rows follow no loop.
    std::int64_t block_rows() const;
    // Combinations of the shifts that a loop runs over.
    std::int64_t selected() const;

    const Mapping& mapping;
    IndexedOperand c;
    IndexedOperand a;
    IndexedOperand b;
    std::string indices;    // all letters, in the order in which they first appear
    std::int64_t word = 1;  // neighbours along the depth that are side by side
    char walk_letter = 0;   // the loop along `walk`; 0 without
    Line walk;              // of a loop outside the kernel: selects classes, or entries
    Line rows;
    Line depth;
    std::vector<std::vector<AxisPiece>> pieces;  // of the rows, by phase

private:
    void require_places(const ProductFormula& statement) const;
    Line line_of(char index, bool solved) const;
};

// The selections and the classes of terms: which products the places outside an array leave out,
// and where the operands of the others are.
void add_terms(const IndexedProduct& product, Contraction& contraction);

}  // namespace dlprim
