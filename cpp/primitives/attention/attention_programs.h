// What attention does to a block of scores between its two products, as row programs. A row is a
// query, its columns are keys. Scores of all keys need not be there at once: of those before a
// block the highest score and the sum of powers are known, and what was made with a lower highest
// score shrinks (the online softmax of arXiv 1805.02867, as FlashAttention uses it, arXiv
// 2205.14135).
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "jit/dtype.h"
#include "primitives/tensor/partition.h"
#include "rows/row_kernel.h"

namespace dlprim {

// Rows a line longer than a power of two, whose lines would share sets of the first cache.
inline std::int64_t padded(std::int64_t elements, DType dtype) {
    return aligned(elements * size_of(dtype)) / size_of(dtype) + kCacheLineBytes / size_of(dtype);
}

// How scores come from products. First operands of a program: products; the zero point of 8-bit
// ones; score_factor(); the mask, and what hides keys that come later, as numbers that are added,
// where there are such.
struct ScoresSpec {
    DType products = DType::f32;     // or 8-bit
    std::optional<DType> mask = {};  // as of an AttentionSpec
    bool hides_later = false;
    bool is_first = true;  // no keys were before these
    float softcap = 0;

    friend bool operator==(const ScoresSpec&, const ScoresSpec&) = default;
};

// What is added so that queries do not see keys that come later: one table for all blocks, whose
// row i begins one element before that of row i - 1.
class LaterKeys {
public:
    LaterKeys() = default;  // none are hidden
    // For blocks of so many; query i sees the keys up to i + past.
    LaterKeys(std::int64_t queries, std::int64_t keys, std::int64_t past)
        : zeros_(queries + keys), past_(past), table_(static_cast<std::size_t>(zeros_ + 1), 0.0F) {
        table_.resize(static_cast<std::size_t>(zeros_ + queries),
                      -std::numeric_limits<float>::infinity());
    }

    // Whether any of these keys comes later than one of the queries.
    bool hides(const Range& queries, const Range& keys) const {
        return !table_.empty() && keys.end > queries.begin + past_ + 1;
    }
    // Row i and column j is [j - i].
    const float* at(const Range& queries, const Range& keys) const {
        return &table_[static_cast<std::size_t>(zeros_ + keys.begin - queries.begin - past_)];
    }

private:
    std::int64_t zeros_ = 0;
    std::int64_t past_ = 0;
    std::vector<float> table_;
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

// What softmax makes, in 8 bits. Further operands that are read: the highest score of each row, and
// the step of the results, to which `zero` is added.
std::shared_ptr<const RowKernel> weights_kernel(const ScoresSpec& spec, DType dtype, float zero);

// Words of four bytes, in place: uint8 becomes int8 of 128 less.
std::shared_ptr<const RowKernel> signed_kernel();

// What gradients need to know of a row, of scores and of the gradients by softmax's weights, which
// nothing is divided in yet: the sum of powers, and the sum of powers times gradients. Further
// operands that are read: the highest score; unless these keys are the first, how what was before
// shrinks, and both sums; the gradients. Results: both sums.
std::shared_ptr<const RowKernel> sums_kernel(const ScoresSpec& spec);

// The weights, and the gradients by products of queries and keys, both of `dtype`. Further operands
// that are read: the highest score and both sums of all keys, the gradients by weights, and the
// scale of scores. Results may lie on products and on gradients of their type.
std::shared_ptr<const RowKernel> differentiating_kernel(const ScoresSpec& spec, DType dtype);

// Two rows of float32 added up, or one, as rows of `dtype`.
std::shared_ptr<const RowKernel> adding_kernel(DType dtype);
std::shared_ptr<const RowKernel> storing_kernel(DType dtype);

// Rows times a number each, in place: the rows, the numbers, the rows.
std::shared_ptr<const RowKernel> shrinking_kernel();

// Rows divided by their sums, or zeros where that is 0: rows, sums, results of `dtype`.
std::shared_ptr<const RowKernel> dividing_kernel(DType dtype);

}  // namespace dlprim
