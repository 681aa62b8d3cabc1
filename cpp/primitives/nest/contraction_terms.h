// What contraction_builder.h makes of a statement on the way: the product with its operands by
// index and the two lines that may be sums of indices, and the terms of every class of blocks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "primitives/nest/affine_axis.h"
#include "primitives/nest/contraction.h"
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

struct Product {
    Product(const Statement& statement, const ContractionLayouts& layouts, const Mapping& mapping);

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

class TermBuilder {
public:
    explicit TermBuilder(const Product& product);

    // One piece spans all rows: they can be cut anywhere.
    bool rows_are_whole() const;
    // Of a block where its rows follow no loop.
    std::int64_t block_rows() const;
    // Combinations of the shifts that a loop runs over.
    std::int64_t selected() const;
    // The selections and the classes.
    void add_to(Contraction& contraction);

private:
    // The first element of a term in A and B, in elements.
    struct Start {
        std::int64_t a = 0;
        std::int64_t b = 0;
    };

    void select_walk(Contraction& contraction);
    void select_shifts(Contraction& contraction);
    std::vector<Term> terms_of(const std::vector<Shift>& walk);
    Term gathered(const AxisPhase& phase, const AxisPiece& piece, const std::vector<Shift>& walk);
    std::vector<Term> scattered(const std::vector<Shift>& walk) const;
    bool joins(const std::vector<Shift>& shifts) const;
    std::vector<Term> summed(std::int64_t walk, std::int64_t inner, Start start);
    std::vector<Term> windows(std::int64_t walk);
    void add_walk_entries(std::int64_t shift, Start start, Term& term) const;
    void add_entry(Start start, Term& term) const;

    const Product& it_;
    std::int64_t element_;
    std::vector<std::vector<AxisPiece>> pieces_;  // of the rows, by phase
    bool slides_ = false;
};

}  // namespace dlprim
