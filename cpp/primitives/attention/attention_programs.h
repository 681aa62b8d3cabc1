// What attention does to a block of scores between its two products, as row programs. A row is a
// query, its columns are keys. Scores of all keys need not be there at once: of those before a
// block the highest score and the sum of powers are known, and what was made with a lower highest
// score shrinks (the online softmax of arXiv 1805.02867, as FlashAttention uses it, arXiv
// 2205.14135).
#pragma once

#include <memory>
#include <optional>

#include "jit/dtype.h"
#include "rows/row_kernel.h"

namespace dlprim {

// How scores come from products. First operands of a program: products; score_factor(); the mask,
// and what hides keys that come later, as numbers that are added, where there are such.
struct ScoresSpec {
    std::optional<DType> mask = {};  // as of an AttentionSpec
    bool hides_later = false;
    bool is_first = true;  // no keys were before these
    float softcap = 0;
};

float score_factor(const ScoresSpec& spec, float scale);

// The highest score of each row, in a program of its own: rows overlap, none waits for the one
// before. Unless these keys are the first, from that of the keys before, the last operand that is
// read; and then how results of those shrink.
std::shared_ptr<const RowKernel> highest_kernel(const ScoresSpec& spec);

// Further operands that are read: the highest score; unless these keys are the first, how what was
// before shrinks, and its sum. Results: powers, which may lie on products of their type, and sums.
// A row that has seen no key has the sum 0.
std::shared_ptr<const RowKernel> powers_kernel(const ScoresSpec& spec, DType dtype);

// Rows times a number each, in place: the rows, the numbers, the rows.
std::shared_ptr<const RowKernel> shrinking_kernel();

// Rows divided by their sums, or zeros where that is 0: rows, sums, results of `dtype`.
std::shared_ptr<const RowKernel> dividing_kernel(DType dtype);

}  // namespace dlprim
