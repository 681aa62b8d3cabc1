// Operands of a product as they are and as the kernel reads or writes them. What is packed lies as
// close as can be, so the product's indices get other distances in it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "primitives/mapping/strided_product.h"
#include "primitives/tensor/layout.h"

namespace dlprim {

struct PackedOperand {
    Layout plain = {};
    Layout packed = {};
};

// Indices of an operand, the farthest first.
struct OperandOrder {
    std::int64_t ProductIndex::* stride;
    std::vector<std::vector<ProductIndex>*> classes;
};

// Densely, in the order of the classes.
PackedOperand pack_densely(DType type, const OperandOrder& order);

struct PackedColumns {
    PackedOperand operand = {};
    std::int64_t block = 0;         // of columns; 0: not cut
    std::int64_t block_stride = 0;  // elements from one block to the next
};

// B as [outer][blocks of columns][sums / word][columns of the block][word], or all columns in one
// block where they are several indices.
PackedColumns pack_columns(StridedProduct& product, std::int64_t word);

// A copy of the bias, float32, side by side along the columns `n`; none where it can be read in
// place.
std::optional<BoundStatement> pack_bias(StridedProduct& product, ProductIndex& n);

}  // namespace dlprim
