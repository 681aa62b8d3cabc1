// The terms of every class of blocks (contraction.h): which products the places outside an array
// leave out, and where the operands of the others are.
#pragma once

#include <cstdint>
#include <vector>

#include "primitives/nest/affine_axis.h"
#include "primitives/nest/contraction.h"
#include "primitives/nest/indexed_product.h"

namespace dlprim {

class TermBuilder {
public:
    explicit TermBuilder(const IndexedProduct& product);

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

    const IndexedProduct& it_;
    std::int64_t element_;
    std::vector<std::vector<AxisPiece>> pieces_;  // of the rows, by phase
    bool slides_ = false;
};

}  // namespace dlprim
