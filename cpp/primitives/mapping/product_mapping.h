// How a product of matrices becomes calls of the kernel. Which index is the kernel's m, n and k
// follows from where elements are neighbours: n in B and in C, k or m in A. Where that holds for
// no index an operand is packed, and it may pay elsewhere, too; of a product and the transposed one
// either may be cheaper. So there are a few ways, each with the cycles that it is expected to take.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "jit/machine.h"
#include "primitives/mapping/operand_packing.h"
#include "primitives/nest/contraction.h"
#include "primitives/nest/loop_nest.h"

namespace dlprim {

struct ProductWay {
    bool exchanges = false;  // computes the transposed product
    bool packs_a = false;    // A and B as the kernel sees them, so after exchanging
    bool packs_b = false;
    bool packs_c = false;  // the result is computed elsewhere and then moved
    bool ends = true;      // the end of the product is the kernel's
    double cycles = 0;
};

struct ProductMapping {
    StridedProduct product = {};  // as the kernel sees it
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

// The ways that exist, from the cheapest on. None where there is no row or no sum that the kernel
// could go along, or where C is added to and not as the kernel writes.
std::vector<ProductWay> product_ways(const StridedProduct& product, const Machine& machine);

ProductMapping mapping_of(const StridedProduct& product, const ProductWay& way,
                          const Machine& machine);

}  // namespace dlprim
