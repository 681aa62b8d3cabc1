// What it takes to pack an operand. Moving bytes is the least of it where neighbours of the array
// are no neighbours of the copy, as small pieces are transposed then.
#pragma once

#include <cstdint>
#include <vector>

#include "jit/dtype.h"
#include "jit/machine.h"
#include "primitives/mapping/strided_product.h"

namespace dlprim {

// Of the end of a product where that is a pass of its own over C; 0 without one.
double cycles_of_end(const StridedProduct& product, const Machine& machine);

class CopiedOperand {
public:
    CopiedOperand(std::int64_t ProductIndex::* stride, DType dtype)
        : stride_(stride), dtype_(dtype) {}

    // A class as it lies and as it is packed.
    void add(const std::vector<ProductIndex>& plain, const std::vector<ProductIndex>& packed);

    double cycles(const Machine& machine) const;

private:
    struct Index {
        std::int64_t extent = 1;
        std::int64_t from = 0;
        std::int64_t to = 0;
    };

    const Index* nearest(std::int64_t Index::* distance) const;

    std::int64_t ProductIndex::* stride_;
    DType dtype_;
    double elements_ = 1;
    std::vector<Index> indices_ = {};
};

}  // namespace dlprim
