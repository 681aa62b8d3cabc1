// A statement (formula.h) and the layouts of its operands are nearly a Contraction: which indices
// are rows, columns and sums follows from where they stand, strides, leading dimensions and batch
// tables from the layouts, and which products a place outside an array leaves out from the sums of
// indices. What is left is a choice, and all of it stands in a Mapping. Low-precision pairs,
// windows of neighbours and gathered pixels are layouts like any other.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "primitives/nest/affine_axis.h"
#include "primitives/nest/contraction.h"
#include "primitives/nest/formula.h"
#include "primitives/nest/loop_nest.h"
#include "primitives/tensor/layout.h"

namespace dlprim {

// Indices are named by their letter. A dimension of the kernel may be two of them, neighbours in
// the operands that have both ("sc": c within s), of which the first one may be the shift of a sum.
struct Mapping {
    // Loops from the first to the last. Blocks of rows, columns and depth; single indices of all
    // others. A sum of two indices in the result has its extent under the letter of the first one.
    // The loop of rows is left out where they cannot be cut anywhere.
    std::string loops = {};
    std::string rows = {};
    std::string columns = {};
    std::string depth = {};
    // So many of `depth` are one index of its loop; 0: a block of the layouts.
    std::int64_t depth_unit = 0;
    // Shifts that the result has: one loop, the letter that is no index, runs over all of them and
    // selects the terms.
    std::string shifts = {};
    // The summed loop whose range becomes a batch; 0: that of `depth`.
    char batch = 0;
    bool transposed_a = false;  // A is [depth][rows]
    Cover cover = Cover::disjoint;
    std::string bias = {};  // indices of a bias, C-contiguous
};

struct ContractionLayouts {
    Layout c = {};
    Layout a = {};
    Layout b = {};
};

// The dimensions of a layout are the places of its access, in their order. Throws
// std::invalid_argument that quotes the statement where these do not fit, where an index has no
// place of its own and so no extent, or where a place lies outside an array and has no "?".
Contraction contraction_from(const ProductFormula& statement, const ContractionLayouts& layouts,
                             const Mapping& mapping);

// Of a product with weights as B: has them fetched ahead where few rows use them, because since the
// last call of a network those of its other layers have driven them out of the caches.
void fetch_far_weights(Contraction& product);

// Into how many parts the columns of a block can be cut, from few to many: whole cache lines of
// float32, as threads are to write none together. Empty where they cannot.
std::vector<std::int64_t> parts_of_columns(const Contraction& whole);

// The same products with a loop more, over so many parts of the columns of each block, and a
// schedule of the whole one with that loop behind all that threads share.
Contraction in_parts_of_columns(const Contraction& whole, std::int64_t parts);
Schedule with_parts_of_columns(const Contraction& whole, const Schedule& schedule);

}  // namespace dlprim
