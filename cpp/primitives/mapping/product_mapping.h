// One way through a product as what the driver and the copies understand: a Contraction, and for
// every packed operand the layout of the array and of what the kernel reads or writes.
#pragma once

#include <optional>

#include "jit/machine.h"
#include "primitives/mapping/product_walk.h"
#include "primitives/mapping/strided_product.h"
#include "primitives/nest/contraction.h"
#include "primitives/nest/loop_nest.h"
#include "primitives/tensor/layout.h"

namespace dlprim {

// An array as it is, and as the kernel reads or writes it.
struct PackedOperand {
    // Columns of a packed B that the kernel multiplies and C has not: floats, from row to row.
    struct Rim {
        std::int64_t first = 0;
        std::int64_t rows = 0;
        std::int64_t row = 0;
        std::int64_t columns = 0;
    };

    Layout plain = {};
    Layout packed = {};
    Rim rim = {};  // zeros, so that nobody multiplies what happens to be there
};

struct ProductMapping {
    std::optional<PackedOperand> a = {};
    std::optional<PackedOperand> b = {};
    std::optional<PackedOperand> c = {};
    // A copy of the bias as the kernel reads it, float32; none where it can be read in place.
    std::optional<BoundStatement> bias = {};
    // Its last loops, so many, are the products apart from each other.
    Contraction contraction = {};
    int outer_loops = 0;
    std::optional<Schedule> schedule = {};  // of all loops; none: the cost model's choice
};

// The way must exist.
ProductMapping mapping_of(const StridedProduct& product, const ProductWay& way,
                          const Machine& machine);

}  // namespace dlprim
