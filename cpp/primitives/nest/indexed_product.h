// A statement with layouts and a mapping, by index: its operands, and the lines along which calls
// of the kernel walk, which may be sums of indices. What contraction_builder.h derives loops from,
// and contraction_terms.h terms.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "primitives/nest/affine_axis.h"
#include "primitives/nest/contraction_builder.h"
#include "primitives/nest/indexed_operand.h"

namespace dlprim {

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
    IndexedProduct(const Statement& statement, const ContractionLayouts& layouts,
                   const Mapping& mapping);

    std::int64_t extent(char index) const;
    std::int64_t block(char index) const;
    bool is_index(char letter) const;
    bool is_in_result(char index) const;
    char rows_letter() const { return mapping.rows.back(); }
    // The loop along `walk`; 0 without.
    char walk_letter() const { return walk_; }
    // Where rows of the result follow the positions of a sum in it, windows of the result overlap.
    bool scatters() const { return scatters_; }
    // The one inside a call: that of the rows, or of the depth.
    const Line& inner_line() const { return mapping.shifts.empty() ? rows : depth; }
    std::int64_t ldc() const;

    const Mapping& mapping;
    std::vector<IndexUse> uses;
    IndexedOperand c;
    IndexedOperand a;
    IndexedOperand b;
    std::int64_t word = 1;  // neighbours along the depth that are side by side
    Line walk;              // of a loop outside the kernel: selects classes, or entries
    Line rows;
    Line depth;

private:
    const SumPlace* sum_at(char position) const;
    void require_places(const Statement& statement) const;
    Line line_of(char index, bool solved) const;

    char walk_ = 0;
    bool scatters_ = false;
};

}  // namespace dlprim
